"""Examples, demonstrations and a template become the prompts that a model is asked about."""
