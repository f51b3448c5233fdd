"""What a terminal shows of the checks before a run."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from evaluator.files.whole import size_text
from evaluator.record import CheckedDatasetRecord, FindingRecord, LabelRecord, PreflightRecord

MAX_SHOWN = 12  # labels of a dataset


def preflight_lines(record: PreflightRecord, utilisation: float) -> Iterator[str]:
    """Yield the lines about one model: datasets, tokens, devices, then findings."""
    yield f"{record.model}: {_model(record)}"
    for name, dataset in record.datasets.items():
        yield ""
        yield from dataset_lines(name, dataset)
    yield ""
    yield from token_lines(record)
    yield from _device_lines(record, utilisation)
    yield ""
    yield from finding_lines(record.findings)


def _model(record: PreflightRecord) -> str:
    context = f"{record.context_tokens:,} tokens" if record.context_tokens else "no limit"
    front = record.tokens_in_front
    added = f"{front} token{'s' * (front != 1)} (BOS)" if front else "no BOS"
    added = "special tokens as the chat template writes them" if record.chat else f"{added} in front of a prompt"
    template = f"chat template: {template_text(record)}"
    return f"context {context}; {added}; {template}; label boundary {record.label_boundary}"


def template_text(record: PreflightRecord) -> str:
    """Return whether the model has a chat template, and whether prompts go through one."""
    if record.chat:
        return f"prompts go through {record.chat.form}"
    return "present, not used" if record.has_chat_template else "none"


def dataset_lines(name: str, dataset: CheckedDatasetRecord) -> Iterator[str]:
    """Yield the lines about a dataset's classes, labels, demonstrations and detectable differences."""
    yield f"{name}: {dataset.queries:,} queries, longest prompt {dataset.longest_prompt_tokens:,} tokens"
    if dataset.class_queries:
        shares = [f"{label} {n:,} ({n / dataset.queries:.0%})" for label, n in dataset.class_queries.items()]
        yield f"  classes: {_listed(shares)}"
    if dataset.labels:
        yield f"  label tokens: {_listed([label_text(label) for label in dataset.labels])}"
    elif dataset.label_spaces:
        yield f"  label spaces: {dataset.label_spaces:,}"
    if dataset.demonstration_sets:
        yield (
            f"  demonstration sets: {dataset.demonstration_sets:,}, {dataset.sets_without_a_class:,} of them without "
            "every label"
        )
    yield f"  smallest difference of two accuracies (80% power, 5% level): {detectable_text(dataset)}"


def label_text(label: LabelRecord) -> str:
    """Return a label and its tokens: 'good' = 1 token [good]."""
    n = len(label.tokens)
    return f"{label.text!r} = {n} token{'s' * (n != 1)} [{' '.join(label.pieces)}]"


def detectable_text(dataset: CheckedDatasetRecord) -> str:
    """Return the smallest detectable differences, for each share of queries answered differently."""
    return ", ".join(
        f"{'none' if difference is None else f'{difference:.3f}'} where {float(share):.0%} are answered differently"
        for share, difference in dataset.detectable.items()
    )


def token_lines(record: PreflightRecord) -> Iterator[str]:
    """Yield the lines about tokens and memory."""
    about = "about " if record.tokenised_prompts < record.prompts else ""
    sample = f" (from {record.tokenised_prompts:,} of them)" if about else ""
    yield f"{record.requests:,} requests, {record.prompts:,} distinct prompts: {about}{record.tokens:,} tokens{sample}"
    floors = ", ".join(f"{floor:,} in blocks of {size}" for size, floor in record.block_floor_tokens.items())
    yield f"  to compute, shared prefixes once: {about}{record.floor_tokens:,}; {floors}"
    if record.weight_bytes:
        weights, cache = size_text(record.weight_bytes), size_text(record.cache_bytes_per_token)
        parameters = f"; {record.n_parameters:,} parameters" if record.n_parameters else ""
        yield f"  memory: weights {weights}, cache {cache} a token{parameters}"


def _device_lines(record: PreflightRecord, utilisation: float) -> Iterator[str]:
    if not record.devices:
        return
    yield (
        f"Estimates, not measurements: {record.flop_per_token or 0:,} operations a token at {utilisation:.0%} of the "
        "device's peak, and 1 ms a request; prices by the hour as in docs/preflight.md"
    )
    width = max(map(len, record.devices))
    for name, device in record.devices.items():
        fits = "" if device.fits else "  (does not fit in its memory)"
        yield f"  {name:{width}}  {duration(device.elapsed_s):>9}  ${device.price_usd:,.2f}{fits}"


def finding_lines(findings: Sequence[FindingRecord]) -> Iterator[str]:
    """Yield a line for each finding, one for all notes of a name; one that says there are none."""
    if not findings:
        yield "Nothing was found that a run should wait for."
    for name, group in groupby(findings, key=lambda one: one.name):
        ones = list(group)
        first, n_others = ones[0], len(ones) - 1
        for one in ones if first.level != "note" else ones[:1]:
            yield f"{one.level.capitalize():7}  {name}: {_about(one)}"
        if first.level == "note" and n_others:
            also = _listed([one.dataset for one in ones[1:]])
            yield f"{'':7}  {' ' * len(name)}  also found in {n_others} other dataset{'s' * (n_others > 1)}: {also}"


def _about(one: FindingRecord) -> str:
    return f"{one.dataset}: {one.text}" if one.dataset else one.text


def duration(seconds: float) -> str:
    """Return a time in the unit that suits it."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _listed(parts: Sequence[str]) -> str:
    more = len(parts) - MAX_SHOWN
    return ", ".join(parts[:MAX_SHOWN]) + (f" and {more} others" if more > 0 else "")
