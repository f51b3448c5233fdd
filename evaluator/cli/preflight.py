"""The command `preflight`: check prompts, and estimate what a run takes, without weights."""

import json
from typing import Any

import click

from evaluator.cli.configurations import configurations
from evaluator.cli.options import FOLDER, MODEL_HELP, engine_options, prompt_options
from evaluator.cli.suite_options import SuiteCommand
from evaluator.cli.user_path import UserPath


@click.command(cls=SuiteCommand)
@prompt_options
@click.option("--out", type=FOLDER, help="Folder of the run to come, which then finds its prompts there.")
@click.option("--model", "models", required=True, multiple=True, help=f"{MODEL_HELP} Its weights are not read.")
@engine_options
@click.option("--device", multiple=True, metavar="NAME", help="Estimate for this device; all of them if left out.")
@click.option(
    "--device-file",
    type=UserPath(),
    help="TOML file of devices: peak, memory and price of each (docs/preflight.md).",
)
@click.option(
    "--utilisation",
    type=float,
    default=0.4,
    show_default=True,
    help="Share of a device's peak that a run is assumed to reach.",
)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def preflight(as_json: bool, **given: Any) -> None:
    """Check the prompts of SUITE... and estimate what a run takes; nothing is scored and no weights are read.

    Takes the options of `run`. Findings marked "stop" stop a run, unless its --accept names them.
    """
    from evaluator.cli.terminal import draw
    from evaluator.files.json_files import to_builtins
    from evaluator.preflight.devices import Assumptions
    from evaluator.preflight.text import preflight_lines
    from evaluator.run.preflight import preflight as check

    config, models = configurations(given)
    assumptions = Assumptions(devices=given["device"], file=given["device_file"], utilisation=given["utilisation"])
    data = given["store"] or given["out"]
    records = [draw(check(config, model, assumptions, data=data)) for model in models]
    if as_json:
        click.echo(json.dumps({"models": [to_builtins(record) for record in records]}, indent=2, ensure_ascii=False))
    else:
        for record in records:
            click.echo("\n".join(preflight_lines(record, given["utilisation"])))
