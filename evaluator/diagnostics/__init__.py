"""Diagnostics: what accuracy alone does not show."""
