"""Several runs beside each other: their tables go in; paired differences, rank correlations and lines come out."""
