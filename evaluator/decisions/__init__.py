"""Typed questions and the answers of decision services, as they go over the wire."""
