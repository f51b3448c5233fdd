"""Benchmarks of kernels, one module per kernel, with the name of the kernel."""
