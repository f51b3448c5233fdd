"""Build prompts from examples, demonstrations and a template."""
