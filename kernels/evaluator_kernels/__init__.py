"""Public ops; each folder holds a reference, a fast version and the function that chooses between them."""
