"""Define the scenarios whose time is predicted, and build their prompts."""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import polars as pl

from benchmarks.harness import SHARED_DATA
from benchmarks.throughput.workloads import evaluator
from evaluator.config import ModelConfig
from evaluator.engine import find_source
from evaluator.progress import finish
from evaluator.run.folder import BuiltFolder
from evaluator.suites import default_label_boundary
from evaluator.tokens.table import tokenise_store

SCENARIOS: dict[str, list[str]] = {
    "StaICC, all parts and methods": ["staicc", "--methods", "all", "--definition", "paper"],
    "prompt search, TREC, 200 prompts x 200 queries": [
        "prompt-search", "--datasets", "trec", "--tries", "200", "--queries", "200", "--definition", "paper"],
    "PVI, ten settings, 2,000 queries each": [
        "pvi", "--data", str(SHARED_DATA / "pvi"), "--datasets", "snli", "--shots", "3,6", "--sets", "5",
        "--queries", "2000", "--definition", "paper"],
}  # fmt: skip

GPU_BLOCK_TOKENS = 16  # vLLM's default block size


class Store(NamedTuple):
    """The tokenised prompts of a scenario."""

    name: str
    tokens: pl.DataFrame  # schemas.TOKENS
    suites: pl.DataFrame  # columns prompt_id and suite, the first suite that uses the prompt
    n_prompts: int

    def groups(self) -> Iterator[tuple[str, pl.DataFrame]]:
        """Yield the name and the distinct token rows, in prefix order, of every suite in the scenario.

        The name is that of the scenario if it has only one suite. Rows for hidden states are left out.
        """
        rows = self.tokens.unique("token_id", keep="first", maintain_order=True).filter(pl.col("ask") != "state")
        rows = rows.join(self.suites, on="prompt_id", how="left", maintain_order="left")
        groups = rows.partition_by("suite", as_dict=True, maintain_order=True, include_key=False)
        for (suite,), group in sorted(groups.items()):
            yield f"{self.name}: {suite}" if len(groups) > 1 else self.name, group


def stores(arguments: argparse.Namespace, folder: Path) -> Iterator[Store]:
    """Build and tokenise the prompts of all scenarios."""
    source = find_source(ModelConfig(model=arguments.model))
    for number, (name, words) in enumerate(SCENARIOS.items()):
        queries = ["--queries", arguments.queries] if arguments.queries else []
        evaluator("build", *words, *queries, "--out", str(folder / str(number)))
        built = BuiltFolder(folder / str(number)).built
        boundary = default_label_boundary(built.config.suites)
        table = finish(tokenise_store(built.store, source.tokenizer, source.tokenizer_fingerprint, boundary, ["paper"]))
        suites = built.store.requests().select("prompt_id", "suite").unique("prompt_id", keep="first").collect()
        yield Store(name, table.tokens.collect(), suites, built.store.manifest.n_prompts)
