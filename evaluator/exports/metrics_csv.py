"""CSV: the table of metrics as it is, with the model in the first columns, so that several runs can be put together."""

from collections.abc import Iterator

import polars as pl

from evaluator.exports.base import ExportedFile, ExportedRun, Format


def _files(run: ExportedRun) -> Iterator[ExportedFile]:
    model = {"model": run.model, "weights_fingerprint": run.record.model.weights_fingerprint}
    table = run.metrics.select(*(pl.lit(value).alias(name) for name, value in model.items()), pl.all())
    yield ExportedFile("metrics.csv", table.write_csv().encode())


METRICS_CSV = Format(summary="The table of metrics, a row each, with intervals and baselines.", files=_files)
