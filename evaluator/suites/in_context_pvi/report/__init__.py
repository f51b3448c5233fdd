"""The sections of the page: an entry point (sections.py) and a module for what belongs together."""
