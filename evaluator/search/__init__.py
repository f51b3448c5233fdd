"""Prompt search, measured: the best prompt beside its baselines, and rounds that stop the worse half."""
