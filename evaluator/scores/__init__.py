"""Scores: written in shards during a run, and checked before anything is measured."""
