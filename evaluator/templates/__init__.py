"""Templates that render examples as text, with Polars expressions."""
