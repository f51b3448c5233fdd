"""The commands as Python functions, for notebooks and scripts."""
