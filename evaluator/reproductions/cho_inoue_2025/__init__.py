"""Recompute the figures of StaICC from its printed tables, test its sentences, and compare its tables."""
