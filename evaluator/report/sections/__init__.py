"""Sections that any run has: results, methods, reliability, confusion, tokens and record."""
