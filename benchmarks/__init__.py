"""Benchmarks, run from the repository root: `python -m benchmarks.kernels.shared_prefix`."""
