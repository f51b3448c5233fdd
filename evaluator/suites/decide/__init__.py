"""Define the suite decide: typed questions about the rows of a table, and variations that should not change answers."""
