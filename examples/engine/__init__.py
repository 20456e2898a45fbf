"""A small speculative-decoding engine: what an author of a real one would write around the sampling service."""
