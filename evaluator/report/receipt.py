"""Show numerical receipts: how far a run's numbers drift when a sample of its prompts is scored again."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from evaluator.record import ReceiptRecord
from evaluator.report.section import Section, core_template


class ShownReceipt(NamedTuple):
    receipt: ReceiptRecord
    determinism: str


class ReceiptsContext(NamedTuple):
    receipts: Mapping[str, ShownReceipt]  # by name: engine and dtype


def receipt_section(receipts: Mapping[str, ReceiptRecord]) -> Section:
    """Build the section with a row for each receipt of the run."""
    return Section(
        anchor="receipt",
        title="Numerical receipt",
        subtitle="a sample of the prompts, scored again",
        kind="receipt",
        navigation="Receipt",
        template=core_template("receipt.html"),
        context=ReceiptsContext(
            {name: ShownReceipt(receipt, determinism(receipt)) for name, receipt in receipts.items()}
        ),
    )


def receipt_lines(name: str, receipt: ReceiptRecord) -> Iterator[str]:
    """Yield what a terminal shows of a receipt."""
    yield (
        f"{receipt.prompts:,} prompts scored again, shuffled, in {receipt.batches} batches: {name} "
        f"({determinism(receipt)})"
    )
    yield (
        f"Drift: at most {receipt.max_drift_nats:.2g} nats, 99% below {receipt.p99_drift_nats:.2g}, 95% below "
        f"{receipt.p95_drift_nats:.2g}, median {receipt.median_drift_nats:.2g}"
    )
    yield f"Flipped predictions: {receipt.flipped} of {receipt.predictions}"
    if receipt.verdicts is None:
        yield "Verdicts were not compared: prompts were chosen by earlier scores, and other scores choose others"
    else:
        yield f"Changed verdicts: {len(receipt.changed_verdicts)} of {receipt.verdicts}"
        yield from (f"  {line}" for line in receipt.changed_verdicts)


def determinism(receipt: ReceiptRecord) -> str:
    """Describe what the reproducibility of the new numbers depends on."""
    threads = "" if receipt.threads is None else f", {receipt.threads} thread{'s' * (receipt.threads != 1)}"
    return f"{receipt.engine.dtype}{threads}, batch invariance {'on' if receipt.batch_invariant else 'off'}"
