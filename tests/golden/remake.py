"""Make the golden files again, from the StaICC toolkit alone: `make golden`, and review the diff.

staicc_normal_prompts.json: for each dataset, in the toolkit's order, the SHA-256 of the 1,024 prompts of StaICC-Normal
at each k, joined by NUL characters. staicc_prompts.json: the same for each part of its diagnoses, and for its two modes
of demonstrations. Digests alone, because the texts are other people's.
"""

import contextlib
import hashlib
import io
import json
import warnings
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

FOLDER = Path(__file__).parent
SHOTS = (0, 1, 4)


def normal_prompts() -> Iterator[tuple[str, str, list[str]]]:
    """Dataset, number of shots, and prompts in the toolkit's order."""
    from StaICC.normal import Normal

    benchmark = Normal(k=0)
    for k in SHOTS:
        benchmark.re_initialize(k=k)
        for each in benchmark.experimentor:
            yield each.triplet_dataset.get_dataset_name(), f"k={k}", each.prompt_set()


def diagnosis_prompts() -> Iterator[tuple[str, str, list[str]]]:
    """Dataset, part with number of shots, and what the toolkit's own run of it sends to a model."""
    from StaICC import diagnosis

    kinds = {
        "contextual": diagnosis.Contextual_bias,
        "domain": diagnosis.Domain_bias,
        "gler": diagnosis.GLER,
        "template": diagnosis.Template_sens,
        "sampling": diagnosis.Demo_sens,
    }
    for part, kind in kinds.items():
        benchmark = kind(k=0)
        for k in SHOTS:
            benchmark.re_initialize(k=k)
            for each in benchmark.experimentor:
                yield each.triplet_dataset.get_dataset_name(), f"{part} k={k}", _sent(each)


def _sent(experiment: Any) -> list[str]:
    sent: list[str] = []

    def answer(prompt: list[str], label_space: list[str]) -> list[list[float]]:
        sent.extend(prompt)
        return [[1.0] + [0.0] * (len(label_space) - 1)] * len(prompt)

    experiment(forward_inference=answer, batched_inference=True)
    return sent


def domain_mode_prompts() -> Iterator[tuple[str, str, list[str]]]:
    """Dataset, mode with number of shots, and prompts; some minutes, for the toolkit draws until a set fits."""
    from StaICC.normal import Normal

    for k in (1, 4):  # without demonstrations it would draw for ever
        for each in Normal(k=k).experimentor:
            for mode in ("in_domain", "out_of_domain"):
                getattr(each, f"set_{mode}_mode")()
                yield each.triplet_dataset.get_dataset_name(), f"{mode} k={k}", each.prompt_set()


def digests(prompts: Iterable[tuple[str, str, list[str]]]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for dataset, what, texts in prompts:
        found.setdefault(dataset, {})[what] = hashlib.sha256("\0".join(texts).encode()).hexdigest()
    return found


def write(name: str, prompts: Iterable[tuple[str, str, list[str]]]) -> None:
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings(action="ignore"):
        content = json.dumps(digests(prompts), indent=2, ensure_ascii=False)
    (FOLDER / name).write_text(content + "\n", encoding="utf-8")


if __name__ == "__main__":
    from StaICC.util import stable_random

    # It copies a list of all numbers for each draw; of numbers a shallow copy is as good, and quicker by far.
    stable_random.copy = SimpleNamespace(deepcopy=list.copy)
    write("staicc_normal_prompts.json", normal_prompts())
    write("staicc_prompts.json", chain(diagnosis_prompts(), domain_mode_prompts()))
