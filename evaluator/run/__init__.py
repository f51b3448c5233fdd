"""Run the stages from prompts to report. Only this package and cli/ may import all others."""
