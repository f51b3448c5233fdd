"""One run from prompts to report. The only package, with cli/, that sees all others."""
