"""One pass over rows of logits: what later operations need to know of a row without reading it again."""
