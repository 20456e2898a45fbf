"""Client of sampler-service for engines: numpy arrays in, typed results out, no torch."""

__version__ = "0.1.0"
