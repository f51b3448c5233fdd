"""Atomic file writes, folder locks, JSON files with a digest, TOML files, and digests of contents.

Every layer may use this package. Faults of a user's file are raised as EvaluatorError; functions that read plain bytes
raise OSError.
"""
