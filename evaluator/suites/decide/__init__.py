"""The suite decide: typed questions about a table, and what should not change their answers."""
