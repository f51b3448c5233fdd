"""Prompt search (Yauney & Mimno 2024): the best of many prompts, and the best of as many random classifiers."""
