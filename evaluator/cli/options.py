"""The options that several commands share."""

from collections.abc import Callable
from typing import Any, get_args

import click

from evaluator.cli.user_path import UserPath
from evaluator.config import ChatDemonstrations, DevicesConfig, Dtype, LabelBoundary, ServerConfig, ServerKind
from evaluator.schemas import DEFINITIONS

Decorator = Callable[[Callable[..., None]], Callable[..., None]]

FOLDER = UserPath(file_okay=False)


def options(*decorators: Decorator) -> Decorator:
    """Combine options into one decorator, in the order in which --help lists them."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return decorate


force_option = click.option(
    "--force", is_flag=True, help="Replace a finished run in the output folder, even if this one does not extend it."
)
out_option = click.option("--out", required=True, type=FOLDER, help="Output folder; an interrupted run resumes in it.")
prompt_options = options(
    click.argument("suites", nargs=-1, required=True, metavar="SUITE..."),
    click.option(
        "--store",
        type=FOLDER,
        help="Folder of prompts and scores, OUT if left out. Runs that share one score each prompt only once per "
        "model.",
    ),
    click.option(
        "--datasets", metavar="A,B", help="Names that `evaluator datasets` lists; the suite's own if left out."
    ),
    click.option(
        "--data",
        type=click.Path(),  # text, because pathlib turns ./hub into hub
        multiple=True,
        help="A table (CSV, JSON lines, Excel, Parquet, Arrow), a BIG-bench task.json, a folder of either, "
        "hub:OWNER/NAME[/CONFIG[/SPLIT]], or the word hub, which downloads those of --datasets that no file holds.",
    ),
    click.option("--input-column", metavar="A,B", help="Columns of a table in --data: the texts."),
    click.option("--choices-column", help="Column of a table in --data: a list of choices, if each row has its own."),
    click.option(
        "--gold-column", help="Column of a table in --data: the label, or the correct choice's text or number."
    ),
    click.option("--id-column", help="Column of a table in --data: the ids of rows, which are numbered if left out."),
    click.option(
        "--labels",
        metavar="CELL=NAME,...",
        help="Names of the labels in a table in --data: 1=bad,5=great or a TOML file of them; the cells if left out.",
    ),
    click.option("--instruction", help="Text at the start of every prompt about a table in --data."),
    click.option(
        "--template",
        type=UserPath(),
        help="TOML file of the text around examples of a table in --data (docs/own-data.md).",
    ),
    click.option(
        "--training-data",
        type=UserPath(),
        help="Table of the demonstrations; NAME_train next to --data, or rows of --data, if left out.",
    ),
    click.option(
        "--training-rows",
        type=int,
        help="Rows of --data that become demonstrations if there is no table of them; a tenth if left out.",
    ),
    click.option("--parts", metavar="A,B", help="Only these parts of the suites; `evaluator suites` lists them."),
    click.option(
        "--shots", metavar="K", help="Demonstrations in a prompt; 4, or the suite's own. Some suites take several: 1,2."
    ),
    click.option("--queries", type=int, help="Only the first N queries of each dataset."),
    click.option("--methods", metavar="A,B", help="Inference methods, or `all`; the suite's own if left out."),
    click.option(
        "--definition",
        type=click.Choice(["all", *DEFINITIONS]),
        default="all",
        show_default=True,
        help="Whose formulas: the paper's, the released code's, or those behind the published tables.",
    ),
)
run_options = options(prompt_options, out_option, force_option)
accept_option = click.option(
    "--accept",
    metavar="FINDING,...",
    help="Findings of `evaluator preflight` that do not stop the run: prompts-over-context, ...",
)


class DeviceCount(click.ParamType[Any]):
    """A number of devices, or the word `all`."""

    name = "all|N"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value if value == "all" else click.INT.convert(value, param, ctx)


MODEL_HELP = "A folder, a hub name, `embedded` (a small model that ships), or `random`."
engine_options = options(
    click.option("--engine", help="vllm, transformers, server or fake; vllm where it is installed."),
    click.option(
        "--adapter",
        "adapters",
        multiple=True,
        metavar="PATH",
        help="A LoRA adapter of the model: a folder or a hub name. Given several times, adapters are compared; `none` "
        "is the model itself.",
    ),
    click.option("--dtype", type=click.Choice(get_args(Dtype)), default="auto", show_default=True),
    click.option(
        "--quantization", help="Quantise the weights while they are loaded, as vLLM calls it: fp8. Needs --engine vllm."
    ),
    click.option(
        "--label-boundary",
        type=click.Choice(get_args(LabelBoundary)),
        help="Tokenise prompt and label apart, or merged as one string; the suite's own if left out.",
    ),
    click.option(
        "--chat-template",
        metavar="auto|none|FILE",
        help="Put prompts through a chat template: the model's own, none (if left out), or a Jinja file. Several, as "
        "in none,auto, are compared.",
    ),
    click.option(
        "--chat-demonstrations",
        type=click.Choice(get_args(ChatDemonstrations)),
        help="With --chat-template: demonstrations as turns, a question and its answer each (if left out), or as one "
        "message.",
    ),
    click.option(
        "--system-instruction", help="With --chat-template: the text of the system message; none if left out."
    ),
    click.option("--kv-cache-gib", type=float, help="Memory for the prefix cache; the engine's choice if left out."),
    click.option(
        "--devices",
        type=DeviceCount(),
        metavar="all|N",
        help="GPUs to use; as many as one replica takes if left out. Replicas share the work; each takes as many as "
        "--tensor-parallel times --pipeline-parallel. Without a GPU: into how many parts the cores are split.",
    ),
    click.option(
        "--tensor-parallel",
        type=int,
        metavar="M",
        help="Devices that share each layer of a replica; the fewest whose memory holds the model if left out.",
    ),
    click.option(
        "--pipeline-parallel",
        type=int,
        metavar="P",
        default=DevicesConfig.pipeline_parallel,
        show_default=True,
        help="Groups of such devices that hold consecutive layers of a replica.",
    ),
    click.option(
        "--engines-per-device",
        type=int,
        metavar="K",
        default=DevicesConfig.engines_per_device,
        show_default=True,
        help="Replicas on each GPU, which share its memory: for models so small that one replica leaves it idle.",
    ),
    click.option(
        "--ray-address", help="A Ray cluster (HOST:PORT, or auto) whose devices to use; this machine's if left out."
    ),
    click.option("--revision", help="Revision of a hub model."),
    click.option("--trust-remote-code", is_flag=True, help="Run code that comes with the model."),
    click.option(
        "--server-url",
        multiple=True,
        metavar="URL",
        help="With --engine server: a vLLM or SGLang server of the model; several share the work. A key is read from "
        "the environment variable VLLM_API_KEY.",
    ),
    click.option(
        "--server-kind",
        type=click.Choice(get_args(ServerKind)),
        help="With --engine server: its program; what the server calls itself if left out.",
    ),
    click.option("--served-name", help="With --engine server: the model's name there, if it serves several."),
    click.option(
        "--concurrency",
        type=int,
        default=ServerConfig.concurrency,
        show_default=True,
        help="With --engine server: HTTP requests in flight to each server.",
    ),
)
run_folder = click.argument("out", metavar="DIR", type=FOLDER)
