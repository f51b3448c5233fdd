"""Names of models and adapters."""


def last_part(name: str) -> str:
    """Return the end of a path or of a hub name: "model" of "org/model"."""
    return name.rstrip("/").rsplit("/", 1)[-1]
