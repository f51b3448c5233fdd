"""What was typed as a StoreConfig: which suites take which options, and the defaults of each."""

from collections.abc import Callable, Iterable
from typing import Any

from evaluator.config import LONE_SUITES, PVI_SUITE, SEARCH_SUITE, StoreConfig
from evaluator.errors import ConfigError
from evaluator.schemas import DEFINITIONS
from evaluator.suites.in_context_pvi.options import PVI_OPTIONS, TAKEN_BY_PVI, pvi_config
from evaluator.suites.prompt_search.options import SEARCH_OPTIONS, search_config

OWN_OPTIONS = SEARCH_OPTIONS | PVI_OPTIONS
_TAKEN = {SEARCH_SUITE: {*SEARCH_OPTIONS}, PVI_SUITE: {*PVI_OPTIONS, *TAKEN_BY_PVI}}


def own_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options of suites that go alone, in their order."""
    for option in reversed(OWN_OPTIONS.values()):
        command = option(command)
    return command


def store_config(given: dict[str, Any]) -> StoreConfig:
    """What to ask of a model. Raises ConfigError for options that do not fit each other or the suite."""
    from evaluator.datasets import INSTALLED
    from evaluator.suites import SUITES

    suites = suite_names(given["suites"])
    lone = next((name for name in LONE_SUITES if name in suites), None)
    _require_own_options(given, suites)
    shots = numbers("--shots", given["shots"]) if given["shots"] else None
    if shots and len(shots) > 1 and not lone:
        raise ConfigError(
            f"--shots {given['shots']}: only {' and '.join(LONE_SUITES)} take several numbers. Run once for each."
        )
    # Ten datasets are more than a million prompts of a search, and pvi has files of its own: whoever wants all says so.
    every = "" if lone else "all"
    first = SUITES[suites[0]] if suites[0] in SUITES else SUITES[lone or "staicc-normal"]
    definitions = first.definitions if lone else DEFINITIONS
    return StoreConfig(
        suites=suites,
        datasets=names(every if given["datasets"] is None else given["datasets"], INSTALLED),
        n_shots=shots[0] if shots and not lone else 4,
        n_queries=given["queries"],
        methods=names(given["methods"], first.all_methods) if given["methods"] else first.methods,
        definitions=definitions if given["definition"] == "all" else (given["definition"],),
        search=search_config(given, shots) if lone == SEARCH_SUITE else None,
        pvi=pvi_config(given, shots) if lone == PVI_SUITE else None,
    )


def _require_own_options(given: dict[str, Any], suites: tuple[str, ...]) -> None:
    for name in OWN_OPTIONS:
        takers = [suite for suite, taken in _TAKEN.items() if name in taken]
        if given[name] not in (None, ()) and not {*takers} & {*suites}:
            flag = f"--{name.replace('_', '-')}"
            raise ConfigError(f"{flag} belongs to {' and '.join(takers)}, not to {', '.join(suites)}.")


def suite_names(given: Iterable[str]) -> tuple[str, ...]:
    """Names of suites, with every name of a group in the place of the group's."""
    from evaluator.suites import SUITE_GROUPS

    return tuple(name for word in given for name in SUITE_GROUPS.get(word, (word,)))


def names(given: str, known: Iterable[str]) -> tuple[str, ...]:
    """A comma-separated list of names; `all` stands for every known one."""
    return tuple(known) if given == "all" else tuple(name.strip() for name in given.split(",") if name.strip())


def numbers(option: str, given: str) -> tuple[int, ...]:
    """A comma-separated list of whole numbers. Raises ConfigError."""
    try:
        return tuple(int(word) for word in given.split(","))
    except ValueError:
        raise ConfigError(f"{option} takes whole numbers with commas between them, got {given!r}.") from None
