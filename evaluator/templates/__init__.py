"""Templates: the text around examples, as Polars expressions."""
