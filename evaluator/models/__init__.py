"""Read models from their files: facts, digests, tokenizer, LM head. Nothing here runs a model."""
