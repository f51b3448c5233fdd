"""Statistics without a word of this field: rank correlation and analysis of variance."""
