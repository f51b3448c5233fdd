"""Prompts as token ids: tokenizers, where a label begins, and the table of tokens on disk."""
