"""Templates, which turn examples into text, as Polars expressions."""
