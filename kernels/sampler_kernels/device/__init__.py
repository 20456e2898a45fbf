"""What the Triton kernels share: how they are compiled, how they load elements, how they sum. Needs triton."""
