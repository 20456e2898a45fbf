"""Which draft tokens stand, and what the final token of each request is drawn from."""
