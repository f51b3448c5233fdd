"""model-index, the results in the metadata of a model card on the Hugging Face hub.

Source: huggingface_hub's EvalResult, and modelcard.md of huggingface/hub-docs.
"""

from collections.abc import Iterator

import polars as pl

from evaluator.exports.base import ExportedFile, ExportedRun, Format


def _files(run: ExportedRun) -> Iterator[ExportedFile]:
    from huggingface_hub import EvalResult, ModelCardData  # here, because it is slow to import

    headlines = [name for name in run.texts.in_order(run.metrics["metric"]) if run.texts.is_headline(name)]
    results = [
        EvalResult(
            task_type="text-classification",
            task_name="In-context text classification",
            dataset_type=row["dataset"],
            dataset_name=row["dataset"],
            dataset_config=f"{row['suite']}/{row['part']}",
            metric_type=row["metric"],
            metric_name=f"{run.texts.title(row['metric'])} ({row['method']}, {row['definition']})",
            metric_config=f"{row['method']}/{row['definition']}",
            metric_args={name: row[name] for name in ("ci_low", "ci_high", "n_queries")},
            metric_value=row["value"],
        )
        for row in run.finite_metrics.filter(pl.col("metric").is_in(headlines)).iter_rows(named=True)
    ]
    card = ModelCardData(model_name=run.model, eval_results=results)
    yield ExportedFile("model-index.yaml", f"{card.to_yaml()}\n".encode())


MODEL_INDEX = Format(summary="YAML for the head of a model card on the Hugging Face hub.", files=_files)
