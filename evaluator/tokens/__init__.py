"""Tokenise prompts: tokenizers, the boundary between prompt and label, and the token table on disk."""
