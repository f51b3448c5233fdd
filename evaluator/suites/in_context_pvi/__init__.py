"""Measure in-context PVI (Lu et al. 2023): how many bits each input gives a model about its label."""
