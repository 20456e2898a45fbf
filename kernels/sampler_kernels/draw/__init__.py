"""The final token of each request: redrawn at a rejection, or the bonus token."""
