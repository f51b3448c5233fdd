"""Compare several runs: paired differences with tests, rank correlations, scaling with the number of parameters."""
