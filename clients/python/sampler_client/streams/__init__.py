"""What both kinds of session share: which parameter sets the server keeps, and which steps await their answers."""
