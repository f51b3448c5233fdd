"""Write a run to an experiment tracker, Weights & Biases or MLflow, with the Python client of the tracker.

The logged numbers are the headline metrics under the first exported definition, with intervals, and for accuracies the
baselines of guessing. All tables and the page are attached as files.
"""

import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path

from evaluator.errors import ConfigError, WriteError
from evaluator.exports.base import ExportedRun, distinct
from evaluator.redaction import without_secrets
from evaluator.report.notes import first_definition

PROJECT = "evaluator"  # project of Weights & Biases, experiment of MLflow
EXTRA_NUMBERS = ("ci_low", "ci_high", "chance", "majority", "max_random")
"""Columns of schemas.METRICS that are logged as further numbers of a metric."""

MAX_WORD = 100  # characters of a dataset, or another part of a number's name; MLflow allows 250 for the name

MLFLOW_DATABASE = "mlflow.db"
MLFLOW_ARTIFACTS = "artifacts"
MLFLOW_MAX_METRICS = 1000  # largest number in one call of log_batch


@dataclass(frozen=True, kw_only=True)
class Tracker:
    """An experiment tracker, whose Python client writes a run to a folder."""

    summary: str  # line of help
    package: str  # package of the client; the extra that installs it has the same name
    log: Callable[[ExportedRun, Path], Path]
    """Write a run into a folder, and return the path for the command of the tracker."""

    def require_client(self) -> None:
        """Raise ConfigError if the client is not installed."""
        if find_spec(self.package) is None:
            raise ConfigError(
                f"This format is written by the package {self.package}, which is not installed: pip install "
                f"'evaluator[{self.package}]'."
            )


def settings(run: ExportedRun) -> dict[str, str | int | float | bool | None]:
    """Return the settings of a run as a flat mapping; it has no paths of the machine."""
    record = run.record
    return {
        "model": run.model,
        "model_revision": record.model.revision,
        "weights_fingerprint": record.model.weights_fingerprint,
        "parameters": record.model.n_parameters,
        "engine": record.engine.name,
        "engine_versions": ", ".join(f"{name} {version}" for name, version in record.engine.versions.items()),
        "dtype": record.engine.dtype,
        "device": record.engine.device,
        "chat": record.scores.chat is not None,
        "label_boundary": record.scores.label_boundary,
        **{name: ", ".join(getattr(record.prompts, name)) for name in ("suites", "datasets", "methods", "definitions")},
        "shots": record.prompts.shots,
        "queries": record.prompts.queries,
        "prompts_fingerprint": record.prompts.fingerprint,
        "seeds": ", ".join(f"{name} {seed}" for name, seed in record.prompts.seeds.items()),
        "evaluator": record.evaluator,
        "started": record.started,
        "finished": record.finished,
    }


def numbers(run: ExportedRun) -> dict[str, float]:
    """Return name -> value of the headline metrics: PART/DATASET/METHOD/METRIC, with several suites SUITE/PART/...

    Ends of intervals and baselines are named METRIC/COLUMN. Values that are not finite are left out.
    """
    rows = run.texts.headlines(first_definition(run.metrics))
    columns = ["suite"] * (rows["suite"].n_unique() > 1) + ["part", "dataset", "method", "metric"]
    words = {column: _words(rows[column]) for column in columns}
    found: dict[str, float | None] = {}
    for row in rows.sort("suite", "part", "dataset", "method", "metric").iter_rows(named=True):
        name = "/".join(words[column][row[column]] for column in columns)
        found |= {name: row["value"], **{f"{name}/{column}": row.get(column) for column in EXTRA_NUMBERS}}
    return {name: float(value) for name, value in found.items() if value is not None and abs(value) < float("inf")}


def _words(names: Iterable[str]) -> dict[str, str]:
    """Return name -> distinct word, without what one of the trackers refuses: characters, words of dots, long words."""
    taken = set[str]()
    return {name: distinct(re.sub(r"[^\w. :-]|^\.+$", "_", name)[:MAX_WORD], taken) for name in sorted({*names})}


def _log_to_wandb(run: ExportedRun, folder: Path) -> Path:
    """Write a run of Weights & Biases offline, and return its folder.

    Nothing is sent and no key is read; `wandb sync` uploads the run.
    """
    import wandb  # imported here, because the package is an extra

    folder.mkdir(parents=True, exist_ok=True)
    quiet = wandb.Settings(
        mode="offline",
        silent=True,
        console="off",
        save_code=False,
        disable_git=True,
        x_disable_meta=True,  # host, user, command and paths of this machine
        x_disable_machine_info=True,
        x_disable_stats=True,
        x_save_requirements=False,
    )
    logged = wandb.init(
        project=PROJECT,
        name=run.model,
        job_type="evaluation",
        tags=list(run.record.prompts.suites),
        config=settings(run),
        dir=folder,
        settings=quiet,
    )
    try:
        logged.summary.update(numbers(run))
        table = run.finite_metrics
        logged.log({"metrics": wandb.Table(columns=table.columns, data=[list(row) for row in table.iter_rows()])})
        files = wandb.Artifact("results", "evaluation")
        for path in run.attachments():
            # Refer to the file of the run, so that the client copies nothing into its folder.
            files.add_file(str(path), name=f"{path.parent.name}/{path.name}", policy="immutable", skip_cache=True)
        logged.log_artifact(files)
        written = Path(logged.dir).parent
    finally:
        logged.finish()
        wandb.teardown()  # waits until the client's process has written everything
    return written


def _log_to_mlflow(run: ExportedRun, folder: Path) -> Path:
    """Write a run to MLFLOW_TRACKING_URI, returning the folder, or else to a SQLite database, returning its path.

    Raises WriteError, with the reason of MLflow, if it does not take the run.
    """
    from mlflow.exceptions import MlflowException  # imported here, because the package is an extra

    folder.mkdir(parents=True, exist_ok=True)
    own = os.environ.get("MLFLOW_TRACKING_URI")
    try:
        _send_to_mlflow(run, folder, own)
    except MlflowException as error:
        where, what = own or str(folder / MLFLOW_DATABASE), str(error).strip().partition("\n")[0].rstrip(".")
        hint = "Check MLFLOW_TRACKING_URI, or unset it to write a database." if own else "Choose another folder."
        raise WriteError(without_secrets(f"MLflow cannot write the run to {where}: {what}. {hint}")) from error
    return folder / MLFLOW_DATABASE if own is None else folder


def _send_to_mlflow(run: ExportedRun, folder: Path, own: str | None) -> None:
    """Write a run to the server or database `own`, or to a SQLite database in the folder if this is None."""
    from mlflow.entities import Metric, Param
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=own or f"sqlite:///{(folder / MLFLOW_DATABASE).absolute()}")
    found = client.get_experiment_by_name(PROJECT)
    location = None if own else (folder / MLFLOW_ARTIFACTS).absolute().as_uri()
    experiment = found.experiment_id if found else client.create_experiment(PROJECT, artifact_location=location)
    times = (datetime.fromisoformat(at).timestamp() for at in (run.record.started, run.record.finished))
    started, finished = (round(time * 1000) for time in times)
    logged = client.create_run(experiment, start_time=started, run_name=run.model).info.run_id
    params = [Param(name, str(value)) for name, value in settings(run).items() if value is not None]
    client.log_batch(logged, params=params)
    metrics = [Metric(name, value, finished, 0) for name, value in numbers(run).items()]
    for first in range(0, len(metrics), MLFLOW_MAX_METRICS):
        client.log_batch(logged, metrics=metrics[first : first + MLFLOW_MAX_METRICS])
    for path in run.attachments():
        client.log_artifact(logged, str(path), path.parent.name if path.parent.name == "tables" else None)
    client.set_terminated(logged, end_time=finished)


WANDB = Tracker(
    summary="A run for Weights & Biases, offline: `wandb sync` uploads it.", package="wandb", log=_log_to_wandb
)
MLFLOW = Tracker(
    summary="A run for MLflow: a database and files, or MLFLOW_TRACKING_URI.", package="mlflow", log=_log_to_mlflow
)
