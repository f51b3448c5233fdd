"""Races over whole workloads: this project and other tools score the same distinct prompts."""
