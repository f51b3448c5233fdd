"""Prompts and tokens on disk: materialised once, content-addressed, in prefix order."""
