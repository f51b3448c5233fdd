"""Several runs compared: paired differences, rank correlations, scaling."""
