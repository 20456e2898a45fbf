"""The sampling step of speculative decoding, in process: tensors in, tensors out."""
