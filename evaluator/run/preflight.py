"""Check a run before it is scored: `evaluator preflight`, and the same checks at the start of `evaluator run`."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl

from evaluator.config import ModelConfig, RunConfig
from evaluator.datasets.base import ClassificationDataset
from evaluator.engine import ENGINES, engine_name
from evaluator.errors import LabelError, PromptTooLongError, VocabularyError
from evaluator.models.source import ModelSource, dtype_bytes, parameter_bytes, scoring_dtype
from evaluator.preflight import checks
from evaluator.preflight.devices import Assumptions, Work, chosen_devices, estimate
from evaluator.preflight.findings import engine_findings, finding, in_order
from evaluator.progress import Progress, Stage
from evaluator.record import CheckedDatasetRecord, FindingRecord, LabelRecord, PreflightRecord
from evaluator.run.build import Built, build_prompts, check_config
from evaluator.run.resolved_models import ResolvedModel, Tokenised, resolve_model, tokenise_scorable, with_forms
from evaluator.run.score import check_capabilities
from evaluator.schemas import TOKENS
from evaluator.suites import SUITES
from evaluator.tokens.boundary import TextFault
from evaluator.tokens.rows import TokenTotals

BLOCK_TOKENS = "16"  # block size of vLLM's prefix cache on a GPU, for estimates of the tokens to compute

NO_TOKENS = TokenTotals(request_tokens=0, tokens=0, floor_tokens=0, block_floor_tokens={BLOCK_TOKENS: 0})


def preflight(
    config: RunConfig, models: Sequence[ModelConfig], assumptions: Assumptions, *, data: Path | None = None
) -> Stage[list[PreflightRecord]]:
    """Build the prompts of a run and check them for each model; nothing is scored and no weights are read.

    Args:
        config, models: as for a run.
        assumptions: devices and their utilisation, for the estimates of time and price.
        data: folder that keeps the prompts for a later run; None: a temporary folder.

    Raises ConfigError, DatasetError, TemplateError or ModelError if a run would raise it before its first prompt.
    """
    check_config(config)
    chosen_devices(assumptions)  # raises ConfigError for an unknown device before prompts are built
    check_capabilities(config, *models)
    resolved = with_forms([resolve_model(config, model, needs_weights=False) for model in models])
    with nullcontext(data) if data else TemporaryDirectory(prefix="evaluator-") as folder:
        built = yield from build_prompts(config, Path(folder))
        labels, records = split_labels(built), list[PreflightRecord]()
        for done, each in enumerate(resolved):
            yield Progress(stage="Checking", done=done, total=len(resolved), unit="models")
            tokenised = yield from tokenise_scorable(built, built.store, each)
            records.append(checked(built, labels, each, tokenised, assumptions))
        yield Progress(stage="Checking", done=len(resolved), total=len(resolved), unit="models")
    return records


def split_labels(built: Built) -> checks.Labels:
    """Return the labels of a run's datasets; the checks need nothing else from the datasets."""
    return {
        suite: {
            name: checks.SplitLabels(
                names=tuple(taken.verbalizer.label_names),
                queried=frozenset(taken.test["gold"].unique()),
                shown=pl.concat([taken.demonstration["gold"], taken.test["gold"]]),
            )
            for name, dataset in built.datasets.items()
            if isinstance(taken := SUITES[suite].take(dataset, built.config), ClassificationDataset)
        }
        for suite in built.config.suites
    }


def checked(
    built: Built,
    labels: checks.Labels,
    resolved: ResolvedModel,
    tokenised: Tokenised,
    assumptions: Assumptions,
    accept: Collection[str] = (),
) -> PreflightRecord:
    """Check a run before its prompts are scored, and return the record of all checks.

    Args:
        built: the prompts of the run.
        labels: split_labels of its datasets.
        resolved: the model.
        tokenised: the prompts as tokens of the model.
        assumptions: devices and their utilisation, for the estimates.
        accept: names of accepted findings; the record names the accepted findings of level "stop" that were found.
    """
    (source, model, form), n_prompts = resolved, built.store.manifest.n_prompts
    runs_here = ENGINES[engine_name(model)].runs_a_model
    tokens, counts, faults = pl.LazyFrame(schema=TOKENS), NO_TOKENS, list[TextFault]()
    if (table := tokenised.table) is not None:
        tokens = table.tokens.filter(pl.col("ask") != "last_tokens")
        counts, faults = table.manifest.counts, table.manifest.faults
    kinds = checks.prompt_kinds(built.store, tokens, "merged" if form.chat else form.boundary)
    examples = checks.examples(built.store, labels, tokens, kinds)
    findings = [
        *_refusal_findings(tokenised.refused),
        *checks.example_findings(examples, kinds),
        *(engine_findings(source) if runs_here else ()),
        *checks.first_token_findings(source, form.chat, built.store, tokens),
        *checks.fault_findings(faults, n_prompts, form.boundary),
        *checks.template_findings(source, form.chat),
    ]
    record = PreflightRecord(
        model=model.model + source.title.removeprefix(source.name) if runs_here else source.name,
        label_boundary=form.boundary,
        tokens_in_front=resolved.tokens_in_front,
        has_chat_template=source.has_chat_template,
        chat=form.chat.record if form.chat else None,
        context_tokens=source.context_length,
        datasets={name: _dataset_record(name, examples, source) for name in examples.counted},
        requests=built.store.manifest.n_requests,
        prompts=n_prompts,
        tokenised_prompts=tokens.select(pl.len()).collect(engine="streaming").item(),
        **vars(counts),
        **_footprint(source, model, runs_here=runs_here),
        devices={},
        findings=in_order(findings),
        accepted=sorted({one.name for one in findings if one.level == "stop"} & {*accept}),
    )
    work = _work(resolved, record, max(examples.lengths.values(), default=0))
    devices = estimate(work, chosen_devices(assumptions), assumptions.utilisation) if work else {}
    return replace(record, devices=devices)


def _dataset_record(name: str, examples: checks.Examples, source: ModelSource) -> CheckedDatasetRecord:
    spaces, counted = examples.spaces.get(name, []), examples.counted[name]
    sets = examples.sets.get(name, checks.Sets(0, 0, 0))
    labels = zip(*spaces[0], strict=True) if counted.by_label and spaces else ()
    return CheckedDatasetRecord(
        labels=[LabelRecord(text=text, tokens=ids, pieces=source.tokenizer.pieces(ids)) for text, ids in labels],
        label_spaces=len(spaces),
        queries=counted.n_queries,
        class_queries=counted.by_label,
        demonstration_sets=sets.n_sets,
        sets_without_a_class=sets.without_a_class,
        detectable=checks.detectable(counted.n_queries),
        longest_prompt_tokens=examples.lengths.get(name, 0),
    )


def _footprint(source: ModelSource, model: ModelConfig, *, runs_here: bool) -> dict[str, Any]:
    """Return the fields of PreflightRecord about a model's parameters, memory (bytes) and arithmetic (FLOP)."""
    size = source.size if runs_here else None
    n_parameters = (source.n_parameters or size.n_parameters) if size else None
    weight_bytes = source.weight_bytes or None
    if n_parameters and not source.quantization:
        weight_bytes = parameter_bytes(n_parameters, source, model)
    return {
        "n_parameters": n_parameters,
        "weight_bytes": weight_bytes,
        "cache_bytes_per_token": source.kv_values_per_token * dtype_bytes(scoring_dtype(source, model)),
        "flop_per_token": size.flop_per_token if size else None,
    }


def _work(resolved: ResolvedModel, record: PreflightRecord, longest_prompt_tokens: int) -> Work | None:
    """Estimate the arithmetic and the memory of a run; None if the model's size is not known."""
    source, model, _ = resolved
    if record.flop_per_token is None or not record.weight_bytes:
        return None
    return Work(
        flop=record.block_floor_tokens[BLOCK_TOKENS] * record.flop_per_token,
        prompts=record.prompts,
        dtype=scoring_dtype(source, model),
        quantization=model.quantization or (source.quantization or {}).get("quant_method"),
        memory_bytes=record.weight_bytes + record.cache_bytes_per_token * longest_prompt_tokens,
    )


def _refusal_findings(refused: Mapping[str, LabelError | PromptTooLongError]) -> Iterator[FindingRecord]:
    for dataset, error in refused.items():
        name = "prompts-over-context" if isinstance(error, PromptTooLongError) else "unscorable-labels"
        name = "tokens-past-embedding" if isinstance(error, VocabularyError) else name
        yield finding(name, str(error).split("\n")[0].removesuffix(" The longest:"), dataset)
