"""In-context pointwise V-information (Lu et al. 2023): how it holds over demonstrations, shots and models."""
