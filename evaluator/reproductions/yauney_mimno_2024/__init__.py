"""Recompute the published experiments of Yauney & Mimno 2024 from the released predictions."""
