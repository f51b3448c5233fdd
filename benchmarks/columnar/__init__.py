"""Benchmarks of work on tables."""
