"""Edits: what sparse processing makes of the elements that it touches."""
