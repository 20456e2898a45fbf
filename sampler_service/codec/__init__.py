"""Wire bytes to Step and StepResult to wire: the only place of the service that looks inside a step's messages."""
