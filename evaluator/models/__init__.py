"""Models as their files describe them: facts, digests, tokenizer, LM head. Nothing here runs a model."""
