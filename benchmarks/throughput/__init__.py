"""Races of whole workloads: the same distinct prompts, scored by this project and by other tools."""
