"""Files that are whole or absent, one writer a folder, JSON with a digest, and digests of contents.

Every layer may use this package. Whatever is wrong with a file is raised here as one EvaluatorError.
"""
