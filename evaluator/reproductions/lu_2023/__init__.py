"""The published tables of Lu et al. 2023, recomputed from the released results."""
