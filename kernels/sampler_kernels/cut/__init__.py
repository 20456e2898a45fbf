"""Stop ids and limits of length: where emitted tokens are cut."""
