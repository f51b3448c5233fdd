"""Benchmarks and simulations of computations on tables."""
