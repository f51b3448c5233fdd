"""Measure in-context PVI (Lu et al. 2023): the bits of information that an input gives a model about its label."""
