"""Run the stages from prompts to report. Only this package, runs/ and cli/ may import all others."""
