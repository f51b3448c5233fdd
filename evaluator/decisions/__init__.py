"""Typed questions, and requests to decision services and their answers in the formats of the protocols."""
