"""Work groups: who may have which message, how often it was tried, and what became of it."""
