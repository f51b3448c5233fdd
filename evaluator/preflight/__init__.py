"""Check prompts before a run, and estimate its time and memory; no weights are read."""
