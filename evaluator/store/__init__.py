"""Prompts on disk: written once in a folder named by its content; and the prefix order of token rows."""
