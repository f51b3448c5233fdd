"""`python -m evaluator`."""

from evaluator.cli.main import main

main()
