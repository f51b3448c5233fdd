"""The published experiments of Yauney & Mimno 2024, recomputed from the released predictions."""
