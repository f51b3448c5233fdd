"""Check prompts before a run: labels, lengths, classes, and what the run will take; no weights are read."""
