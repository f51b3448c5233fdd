"""`evaluator preflight`, and the same checks at the start of `evaluator run`."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl

from evaluator.config import ChatConfig, ModelConfig, RunConfig
from evaluator.datasets.base import ClassificationDataset
from evaluator.engine import ENGINES, engine_name
from evaluator.errors import LabelError, PromptTooLongError
from evaluator.models.chat import chat_form
from evaluator.models.sizes import model_size
from evaluator.models.source import ModelSource, parameter_bytes, scoring_dtype
from evaluator.preflight.devices import UTILISATION, Assumptions, Device, Work, chosen_devices, estimate
from evaluator.preflight.engines import engine_findings
from evaluator.preflight.findings import finding, in_order
from evaluator.preflight.labels import LabelSpace, label_findings, label_records, label_spaces, space_findings
from evaluator.preflight.queries import (
    Classes,
    Sets,
    class_findings,
    classes,
    demonstration_sets,
    detectable,
    set_finding,
)
from evaluator.progress import Progress, Stage
from evaluator.record import CheckedDatasetRecord, FindingRecord, PreflightRecord
from evaluator.run.asked_models import AskedModel, find_model, prompt_form
from evaluator.run.build import Built, build_prompts, check_config
from evaluator.run.examined_tokens import BLOCK_TOKENS, Examined, examine, examine_sample
from evaluator.run.score import check_capabilities
from evaluator.store.prompt_store import PromptStore
from evaluator.suites import SUITES
from evaluator.tokens.boundary import tokens_around

MAX_TOKENISED = 16_384
"""Prompts of which all are tokenised; of more, a sample."""


def preflight(
    config: RunConfig, model: ModelConfig, assumptions: Assumptions, *, data: Path | None = None
) -> Stage[PreflightRecord]:
    """Build the prompts of a run and check them; nothing is scored and no weights are read.

    Args:
        config, model: as for a run.
        assumptions: of the estimates of time and money.
        data: folder that keeps the prompts for a run; None: a temporary one.

    Raises ConfigError, DatasetError, TemplateError or ModelError where a run would before its first prompt.
    """
    check_config(config)
    check_capabilities(config, model)
    devices = chosen_devices(assumptions)
    source = find_model(model, needs_weights=False)
    # A finding says that a chat template is not applied, so that no warning needs to.
    form = prompt_form(config, model, chat_form(source, model.chat or ChatConfig()))
    with nullcontext(data) if data else TemporaryDirectory(prefix="evaluator-") as folder:
        built = yield from build_prompts(config, Path(folder))
        yield Progress(stage="Checking", done=0, total=1, unit="models")
        asked = AskedModel(source, model, form)
        if built.store.manifest.n_prompts > MAX_TOKENISED:
            examined = examine_sample(built, asked)
        else:
            examined = yield from examine(built, asked)
        record = checked(built, asked, examined, devices, assumptions.utilisation)
        yield Progress(stage="Checking", done=1, total=1, unit="models")
    return record


def checked(
    built: Built, asked: AskedModel, examined: Examined, devices: Mapping[str, Device], utilisation: float
) -> PreflightRecord:
    """Return everything that is known about a run before its prompts are scored."""
    source, model, form = asked
    store, tokens = built.store, examined.tokens
    spaces = label_spaces(store.requests(), store.prompts(), tokens)
    counted = classes(store.requests())
    taken = _taken(built)
    sets = _demonstration_sets(store, taken)
    lengths = _longest_tokens(store, tokens)
    n_front = 0 if form.chat else tokens_around(source.tokenizer)[0]  # a chat template writes such tokens itself
    runs_a_model = ENGINES[engine_name(model)].runs_a_model
    findings = [
        *_refusal_findings(examined.refused),
        *chain.from_iterable(label_findings(name, of_dataset) for name, of_dataset in spaces.items()),
        *space_findings(store.requests(), store.prompts(), "merged" if form.chat else form.boundary),
        *chain.from_iterable(class_findings(name, each, _any_of(taken, name)) for name, each in counted.items()),
        *chain.from_iterable(
            set_finding(name, each, len(dataset.verbalizer.label_names))
            for name, each in sets.items()
            if (dataset := _any_of(taken, name))
        ),
        *(engine_findings(source) if runs_a_model else ()),
        *_model_findings(source.has_chat_template and not form.chat, tokens, n_front),
    ]
    size = model_size(source.folder) if runs_a_model else None
    number_bytes = 4 if scoring_dtype(source, model) == "float32" else 2
    n_parameters = (source.n_parameters or size.n_parameters) if size else None
    weight_bytes = source.weight_bytes
    if n_parameters and not source.quantization:
        weight_bytes = parameter_bytes(n_parameters, source, model)
    cache_bytes = source.kv_values_per_token * number_bytes
    estimates = {}
    if size and weight_bytes:
        work = Work(
            computed_tokens=examined.counts.block_floor_tokens[BLOCK_TOKENS],
            prompts=store.manifest.n_prompts,
            flop_per_token=size.flop_per_token,
            number_bytes=number_bytes,
            weight_bytes=weight_bytes,
            cache_bytes=cache_bytes * max(lengths.values(), default=0),
        )
        estimates = estimate(work, devices, utilisation)
    return PreflightRecord(
        model=model.model + source.title.removeprefix(source.name) if runs_a_model else source.name,
        label_boundary=form.boundary,
        tokens_in_front=n_front,
        has_chat_template=source.has_chat_template,
        chat=form.chat.record if form.chat else None,
        context_tokens=source.context_length,
        datasets={name: _dataset_record(name, each, spaces, sets, lengths, source) for name, each in counted.items()},
        requests=store.manifest.n_requests,
        prompts=store.manifest.n_prompts,
        tokenised_prompts=tokens.select(pl.col("prompt_id").n_unique()).collect(engine="streaming").item(),
        request_tokens=examined.counts.request_tokens,
        tokens=examined.counts.tokens,
        floor_tokens=examined.counts.floor_tokens,
        block_floor_tokens=examined.counts.block_floor_tokens,
        n_parameters=n_parameters,
        weight_bytes=weight_bytes or None,
        cache_bytes_per_token=cache_bytes,
        flop_per_token=size.flop_per_token if size else None,
        devices=estimates,
        findings=in_order(findings),
    )


def _taken(built: Built) -> dict[str, dict[str, ClassificationDataset]]:
    """Return the datasets with one label space as each suite takes them: suite -> dataset."""
    return {
        suite: {
            name: taken
            for name, dataset in built.datasets.items()
            if isinstance(taken := SUITES[suite].take(dataset), ClassificationDataset)
        }
        for suite in built.config.suites
    }


def _any_of(taken: Mapping[str, Mapping[str, ClassificationDataset]], name: str) -> ClassificationDataset | None:
    return next((datasets[name] for datasets in taken.values() if name in datasets), None)


def _demonstration_sets(
    store: PromptStore, taken: Mapping[str, Mapping[str, ClassificationDataset]]
) -> dict[str, Sets]:
    """Return the demonstration sets of each dataset in the first suite that has any."""
    found: dict[str, Sets] = {}
    for suite, datasets in taken.items():
        of_suite = demonstration_sets(store.requests().filter(suite=suite), datasets)
        found = of_suite | found
    return found


def _longest_tokens(store: PromptStore, tokens: pl.LazyFrame) -> dict[str, int]:
    """Return the tokens of each dataset's longest prompt with its longest label."""
    longest = pl.col("continuations").list.eval(pl.element().list.len()).list.max().fill_null(0)
    lengths = tokens.select("prompt_id", n=pl.col("context").list.len() + longest)
    requests = store.requests().select("prompt_id", "dataset").unique()
    rows = requests.join(lengths, on="prompt_id").group_by("dataset").agg(pl.col("n").max()).collect(engine="streaming")
    return dict(rows.iter_rows())


def _dataset_record(
    name: str,
    counted: Classes,
    spaces: Mapping[str, Sequence[LabelSpace]],
    sets: Mapping[str, Sets],
    lengths: Mapping[str, int],
    source: ModelSource,
) -> CheckedDatasetRecord:
    of_dataset = spaces.get(name, [])
    has_one = bool(counted.by_label) and bool(of_dataset)
    return CheckedDatasetRecord(
        labels=label_records(of_dataset[0], source.tokenizer) if has_one else [],
        label_spaces=len(of_dataset),
        queries=counted.n_queries,
        class_queries=counted.by_label,
        demonstration_sets=sets[name].n_sets if name in sets else 0,
        sets_without_a_class=sets[name].without_a_class if name in sets else 0,
        detectable=detectable(counted.n_queries),
        longest_prompt_tokens=lengths.get(name, 0),
    )


def _refusal_findings(refused: Mapping[str, LabelError | PromptTooLongError]) -> Iterator[FindingRecord]:
    for dataset, error in refused.items():
        name = "unscorable-labels" if isinstance(error, LabelError) else "prompts-over-context"
        yield finding(name, str(error).split("\n")[0].removesuffix(" The longest:"), dataset)


def _model_findings(template_unused: bool, tokens: pl.LazyFrame, n_front: int) -> Iterator[FindingRecord]:
    if template_unused:
        yield finding(
            "chat-template-unused",
            "The model's tokenizer has a chat template; prompts are sent as plain text, as the benchmark defines them. "
            "--chat-template auto applies it.",
        )
    if n_front:
        context = pl.col("context").list
        repeated = (context.get(0, null_on_oob=True) == context.get(1, null_on_oob=True)).sum()
        repeats, n_rows = tokens.select(repeated, n=pl.len()).collect(engine="streaming").row(0)
        if repeats:
            yield finding(
                "repeated-bos",
                f"{repeats:,} of {n_rows:,} prompts begin with the same token twice: the text itself begins "
                "with BOS, which the tokenizer adds.",
            )


def check_built(built: Built, asked: AskedModel) -> Stage[PreflightRecord]:
    """Tokenise and check the prompts of a run that is about to score them."""
    examined = yield from examine(built, asked)
    return checked(built, asked, examined, chosen_devices(Assumptions()), UTILISATION)


def with_accepted(record: PreflightRecord, accept: Collection[str]) -> PreflightRecord:
    """Return the record with the names of those findings that would have stopped a run and were accepted."""
    stopping = {one.name for one in record.findings if one.level == "stop"}
    return replace(record, accepted=sorted(stopping & {*accept}))
