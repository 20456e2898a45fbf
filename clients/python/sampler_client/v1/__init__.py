"""Generated stubs of the wire contract, package sampler.v1. See protos/README.md."""
