"""Disturb runs of the evaluator in many ways; check that no number changes and every failure is an error message."""
