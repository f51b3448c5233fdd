"""The command line: words in, one call of the pipeline, progress on the terminal, an exit code out.

0: done. 2: something the user can mend, said in one message. 130: stopped by Ctrl-C; the same command resumes.
Heavy imports live inside the commands, so that `--help` answers at once.
"""

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args

import click

from evaluator import __version__
from evaluator.cli.compare import compare
from evaluator.cli.random_baseline import random_baseline
from evaluator.cli.reproduce import reproduce
from evaluator.cli.suite_options import own_options, store_config
from evaluator.config import Dtype, LabelBoundary, ModelConfig
from evaluator.errors import EvaluatorError
from evaluator.schemas import DEFINITIONS

if TYPE_CHECKING:
    from evaluator.progress import Stage

T = TypeVar("T")
Decorator = Callable[[Callable[..., None]], Callable[..., None]]


def options(*decorators: Decorator) -> Decorator:
    """Several options as one decorator, in the order they are shown."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return decorate


OUTPUT_FOLDER = click.Path(file_okay=False, path_type=Path)

suite_options = options(
    click.argument("suites", nargs=-1, required=True, metavar="SUITE..."),
    click.option("--out", required=True, type=OUTPUT_FOLDER, help="Output folder; an interrupted run resumes in it."),
    click.option(
        "--datasets", metavar="A,B", help="`evaluator datasets` lists them; all, prompt-search and pvi: none."
    ),
    click.option(
        "--shots", metavar="K", help="Demonstrations in a prompt; 4. prompt-search and pvi take several: 1,2,4."
    ),
    click.option("--queries", type=int, help="Only the first N test queries of each dataset; prompt-search: 200."),
    click.option("--methods", metavar="A,B", help="Inference methods, or `all`; vanilla, prompt-search: per_token."),
    click.option(
        "--definition",
        type=click.Choice(["all", *DEFINITIONS]),
        default="all",
        show_default=True,
        help="Whose formulas: the paper's, the released code's, or those behind the published tables.",
    ),
    own_options,
)
MODEL_HELP = "A folder, a hub name, `embedded` (a small model that ships), or `random`."
engine_options = options(
    click.option("--engine", help="vllm, transformers or fake; vllm where it is installed."),
    click.option("--dtype", type=click.Choice(get_args(Dtype)), default="auto", show_default=True),
    click.option(
        "--label-boundary",
        type=click.Choice(get_args(LabelBoundary)),
        help="Tokenise prompt and label apart, as the StaICC toolkit does and its suites do here, or merged as one "
        "string, as prompt-search and pvi do.",
    ),
    click.option("--kv-cache-gib", type=float, help="Memory for the prefix cache; the engine's choice if left out."),
    click.option("--revision", help="Revision of a hub model."),
    click.option("--trust-remote-code", is_flag=True, help="Run code that comes with the model."),
)
existing_folder = click.argument("out", metavar="DIR", type=OUTPUT_FOLDER)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__)
def cli() -> None:
    """Evaluate how well a language model classifies in context."""


@cli.command()
@suite_options
@click.option(
    "--model", "models", required=True, multiple=True, help=f"{MODEL_HELP} Given several times, models are compared."
)
@engine_options
def run(models: tuple[str, ...], **given: Any) -> None:
    """Build the prompts of SUITE..., score them, measure, and write a report.

    `staicc` stands for staicc-normal, staicc-bias and staicc-robustness.
    """
    from evaluator.run import pipeline
    from evaluator.run.report import FolderRun, summary_lines

    out: Path = given["out"]
    configs = [model_config(given | {"model": model}) for model in models]
    if len(configs) > 1:
        page = watch(pipeline.run_models(store_config(given), configs, out))
    else:
        page = watch(pipeline.run(store_config(given), configs[0], out))
        for line in summary_lines(FolderRun(out)):
            click.echo(line)
    click.echo(f"Report: {page}")


@cli.command()
@suite_options
@click.option("--model", help="Tokenise for this model as well.")
def build(model: str | None, **given: Any) -> None:
    """Build the prompts of SUITE... and write them to Arrow files."""
    from evaluator.run import pipeline

    store = watch(pipeline.build(store_config(given), given["out"], ModelConfig(model=model) if model else None))
    click.echo(
        f"{store.manifest['n_requests']:,} requests, {store.manifest['n_prompts']:,} distinct prompts: {store.folder}"
    )


@cli.command()
@existing_folder
@click.option("--model", required=True, help=MODEL_HELP)
@engine_options
def score(**given: Any) -> None:
    """Score the prompts in DIR with a model; what is there already is kept."""
    from evaluator.run import pipeline

    scores = watch(pipeline.score(given["out"], model_config(given)))
    click.echo(f"{scores.totals()['prompts']:,} prompts scored: {given['out'] / 'scores'}")


@cli.command()
@existing_folder
@click.option(
    "--annotations",
    type=click.Path(path_type=Path),
    multiple=True,
    help="pvi: Parquet with several annotators' labels of the queries (uid, premise, hypothesis, label_count).",
)
def measure(out: Path, annotations: tuple[Path, ...]) -> None:
    """Turn the scores in DIR into metrics."""
    from evaluator.run import pipeline

    metrics = watch(pipeline.measure(out, annotations))
    click.echo(f"{metrics.height:,} metrics: {out / 'tables' / 'metrics.parquet'}")


@cli.command()
@existing_folder
def report(out: Path) -> None:
    """Write the report of the metrics in DIR."""
    from evaluator.run import pipeline

    click.echo(f"Report: {watch(pipeline.report(out))}")


@cli.command()
def suites() -> None:
    """List the suites."""
    from evaluator.suites import SUITES

    show_list((name, suite.summary) for name, suite in SUITES.items())


@cli.command()
def datasets() -> None:
    """List the datasets."""
    from evaluator.datasets import DATASETS

    show_list((name, dataset.description) for name, dataset in DATASETS.items())


@cli.command()
def methods() -> None:
    """List the inference methods."""
    from evaluator.suites import ALL_METHODS as METHODS

    show_list((name, method.summary) for name, method in METHODS.items())


@cli.command()
def engines() -> None:
    """List the engines."""
    from evaluator.engine import ENGINES

    show_list((name, "") for name in ENGINES)


cli.add_command(compare)
cli.add_command(random_baseline)
cli.add_command(reproduce)


def show_list(rows: Iterable[tuple[str, str]]) -> None:
    listed = list(rows)
    width = max(len(name) for name, _ in listed)
    for name, summary in listed:
        click.echo(f"{name:{width}}  {summary}".rstrip())


def model_config(given: dict[str, Any]) -> ModelConfig:
    names = ("model", "engine", "dtype", "label_boundary", "kv_cache_gib", "revision", "trust_remote_code")
    return ModelConfig(**{name: given[name] for name in names})


def watch(stage: "Stage[T]") -> T:
    """Run a stage and draw the progress it yields, on a terminal as a bar, elsewhere as a line now and then."""
    from evaluator.cli.terminal import draw

    return draw(stage)


def main() -> None:
    """The entry point; see the module's docstring for the exit codes."""
    try:
        status = cli.main(standalone_mode=False)
    except click.exceptions.Abort:
        status = interrupted()
    except KeyboardInterrupt:
        status = interrupted()
    except click.ClickException as error:
        error.show()
        status = error.exit_code
    except EvaluatorError as error:
        click.echo(f"Error: {error}", err=True)
        status = 2
    sys.exit(status)


def interrupted() -> int:
    from evaluator.run.record import command_line

    click.echo(f"\nStopped. What was scored is kept; this goes on from there:\n  {command_line()}", err=True)
    return 130
