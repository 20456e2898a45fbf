"""The step's randomness: a counter-based generator, so that a decision's uniform depends on nothing but its name."""
