"""The prefix cache of a loaded vLLM: its units, what it keeps, and emptying it."""

from typing import Any


def empty_cache(llm: Any) -> None:
    """Check the prefix cache and empty it, so that the next call does not depend on earlier ones."""
    connector = llm.llm_engine.engine_core.engine_core.scheduler.connector
    if connector is not None:
        connector.check_idle()
        connector.forget()
    emptied = llm.llm_engine.reset_prefix_cache()
    assert emptied, "an earlier call left requests behind"


def shared_block_tokens(llm: Any) -> int | None:
    """Return the unit in which vLLM shares prefixes, in tokens; None where it shares nothing.

    That is a block of the cache, or where kinds of layers have blocks of different sizes the least common multiple: for
    models with a recurrent state hundreds of tokens.
    """
    coordinator = llm.llm_engine.engine_core.engine_core.scheduler.kv_cache_manager.coordinator
    for name in ("_cache_hit_alignment_tokens", "block_size"):
        if unit := getattr(coordinator, name, None):
            return int(unit)
    return None


def keeps_states(llm: Any) -> bool:
    """Return whether a model has recurrent states, which a cache keeps for few places of a prompt."""
    return bool(getattr(llm.llm_engine.engine_core.engine_core.scheduler, "has_mamba_layers", False))
