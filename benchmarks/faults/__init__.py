"""Kill, starve, damage and mislead the evaluator, and check that no number changes and every failure is a sentence."""
