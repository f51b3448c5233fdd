"""Plan, compute, store and check the scores of prompts."""
