"""Compare several runs: paired differences, rank correlations, scaling."""
