"""Load test of sampler-service, with the floor of its transport measured beside it."""

__version__ = "0.1.0"
