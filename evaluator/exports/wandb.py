"""A run of Weights & Biases, written offline by its own client; `wandb sync` uploads it.

Nothing is sent from here, and no key is read: that is left to `wandb sync`.
"""

from pathlib import Path

from evaluator.exports.base import ExportedRun
from evaluator.exports.tracked import PROJECT, Tracker, numbers, settings


def _log(run: ExportedRun, folder: Path) -> Path:
    import wandb  # here, because it is an extra

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
            # By reference to the run's own file, so that nothing is copied to the client's folder.
            files.add_file(str(path), name=f"{path.parent.name}/{path.name}", policy="immutable", skip_cache=True)
        logged.log_artifact(files)
        written = Path(logged.dir).parent
    finally:
        logged.finish()
        wandb.teardown()  # waits until the client's process has written everything
    return written


WANDB = Tracker(
    summary="A run for Weights & Biases, offline: `wandb sync` uploads it.", package="wandb", extra="wandb", log=_log
)
