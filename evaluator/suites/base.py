"""What a suite is: a description, the rows it asks for of one dataset, and what holds for a run that says nothing."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import polars as pl

from evaluator.config import LabelBoundary, StoreConfig
from evaluator.methods.base import Method
from evaluator.report.metric_texts import MetricText
from evaluator.report.section import MeasuredRun, Section
from evaluator.schemas import DEFINITIONS, Definition

DatasetT = TypeVar("DatasetT")


@dataclass(frozen=True, kw_only=True)
class Suite(Generic[DatasetT]):
    """A benchmark, as data. A suite only ever writes rows; it knows nothing of engines, methods or metrics.

    `requests` returns the columns of schemas.REQUESTS without `suite` and `prompt_id`, and those of schemas.PROMPTS
    without `prompt_id`. `tables` returns what the rows do not say, by the tables' names; the store
    keeps them beside the rows.
    """

    summary: str
    requests: Callable[[DatasetT, StoreConfig], pl.DataFrame]
    tables: Callable[[DatasetT, StoreConfig], dict[str, pl.DataFrame]] | None = None
    methods: tuple[str, ...] = ("vanilla",)  # where a run names none
    all_methods: tuple[str, ...] = ("vanilla",)  # where a run names all
    own_methods: Mapping[str, Method] = field(default_factory=dict)  # that no other suite has a use for
    parts: tuple[str, ...]  # that its rows can have
    prompts_differ: tuple[str, ...] = ()  # of these, whose prompts follow one definition: they are measured under that
    definitions: tuple[Definition, ...] = DEFINITIONS  # that it can be measured under
    sections: Callable[[MeasuredRun], Iterator[Section]]  # of the page about a run
    summary_lines: Callable[[MeasuredRun], Iterator[str]]  # for a terminal, at the end of a run
    metric_texts: Mapping[str, MetricText] = field(default_factory=dict)  # titles of metrics that it alone has
    label_boundary: LabelBoundary = "separate"  # where a run names none
