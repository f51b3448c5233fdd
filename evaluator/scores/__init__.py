"""Scores: written while a run goes on, checked before anything is measured."""
