"""Published tables recomputed from released results, one package a paper."""
