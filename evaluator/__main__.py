"""`python -m evaluator`."""

from evaluator.cli import main

main()
