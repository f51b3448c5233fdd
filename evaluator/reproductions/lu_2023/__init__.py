"""Recompute the published tables of Lu et al. 2023 from the released results."""
