"""One benchmark per kernel, under the kernel's name."""
