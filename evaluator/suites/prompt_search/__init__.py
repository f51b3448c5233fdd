"""Compare the best of many prompts with the best of as many random classifiers (Yauney & Mimno 2024)."""
