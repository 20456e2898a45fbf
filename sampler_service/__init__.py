"""The sampling step of speculative decoding as a gRPC service."""

__version__ = "0.1.0"
