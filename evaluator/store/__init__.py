"""The prompt store: prompts on disk, in a folder named by a fingerprint; and the prefix order of token rows."""
