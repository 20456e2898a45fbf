"""Filters: the cut that min-p, top-k and top-p leave in the order of a row."""
