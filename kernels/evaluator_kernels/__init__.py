"""Numeric kernels: each folder has the functions that check and compute."""
