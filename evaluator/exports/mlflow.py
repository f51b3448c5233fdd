"""A run of MLflow, written by its own client: to MLFLOW_TRACKING_URI if it is set, else to a database."""

import os
from datetime import datetime
from pathlib import Path

from evaluator.exports.base import ExportedRun
from evaluator.exports.tracked import PROJECT, Tracker, numbers, settings

DATABASE = "mlflow.db"
ARTIFACTS = "artifacts"
MAX_METRICS = 1000  # that MLflow takes at once
MAX_PARAMS = 100


def _log(run: ExportedRun, folder: Path) -> Path:
    from mlflow.entities import Metric, Param  # here, because it is an extra
    from mlflow.tracking import MlflowClient

    folder.mkdir(parents=True, exist_ok=True)
    own = os.environ.get("MLFLOW_TRACKING_URI")
    client = MlflowClient(tracking_uri=own or f"sqlite:///{(folder / DATABASE).absolute()}")
    found = client.get_experiment_by_name(PROJECT)
    place = None if own else (folder / ARTIFACTS).absolute().as_uri()
    experiment = found.experiment_id if found else client.create_experiment(PROJECT, artifact_location=place)
    started, finished = (_milliseconds(datetime.fromisoformat(at)) for at in (run.record.started, run.record.finished))
    logged = client.create_run(experiment, start_time=started, run_name=run.model).info.run_id
    params = [Param(name, str(value)) for name, value in settings(run).items() if value is not None]
    assert len(params) <= MAX_PARAMS, "settings are few"
    client.log_batch(logged, params=params)
    metrics = [Metric(name, value, finished, 0) for name, value in numbers(run).items()]
    for first in range(0, len(metrics), MAX_METRICS):
        client.log_batch(logged, metrics=metrics[first : first + MAX_METRICS])
    for path in run.attachments():
        client.log_artifact(logged, str(path), path.parent.name if path.parent.name == "tables" else None)
    client.set_terminated(logged, end_time=finished)
    return folder / DATABASE if own is None else folder


def _milliseconds(at: datetime) -> int:
    return round(at.timestamp() * 1000)


MLFLOW = Tracker(
    summary="A run for MLflow: a database and files, or MLFLOW_TRACKING_URI.",
    package="mlflow",
    extra="mlflow",
    log=_log,
)
