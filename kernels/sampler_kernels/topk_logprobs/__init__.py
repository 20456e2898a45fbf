"""Logprobs of emitted tokens: their own, their rank, the largest of their row, and those of listed ids."""
