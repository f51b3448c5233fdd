"""What many tests share: real prompts of every dataset, a tiny random model, and each engine loaded once."""

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import altair as alt
import polars as pl
import pytest
import vl_convert
from hypothesis import settings
from selenium import webdriver

from evaluator.config import ModelConfig
from evaluator.datasets import SOURCES
from evaluator.datasets.staicc import load_staicc
from evaluator.engine import load_engine, vllm_settings
from evaluator.engine.base import Engine
from evaluator.engine.vllm_settings import SETTINGS
from evaluator.files.digests import sealed
from evaluator.files.whole import write_bytes
from evaluator.models.embedded.llama import LlamaSize, make_random_llama
from evaluator.models.source import ModelSource, find_model
from evaluator.process import end_process, tune_process
from evaluator.prompts.rows import normal_requests
from evaluator.run.pipeline import write_run_page
from tests.compare.run_folders import four_runs
from tests.shared_data import absent
from tests.shared_engines import LOADED, close_engines
from tests.together import place_of

pytest_plugins = ["tests.report.report_fixtures"]

# No deadline an example: it would fail whenever the machine is busy, or when the first example compiles a kernel.
settings.register_profile("evaluator", deadline=None, max_examples=40)
settings.load_profile("evaluator")

# Before torch is imported: threads that wait for each other sleep. When another program has one of the cores, those
# that spin make a model four times slower.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# Commands run as a user's do, who has no such variable: with it, a standard error that is lost leaves no text behind.
os.environ.pop("PYTHONUNBUFFERED", None)

# As in the Makefile: processes keep their compiled sources, or each of hundreds would compile everything again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Ray's workers have the lowest priority but four by default: tests of replicas would wait until other programs end.
os.environ.setdefault("RAY_worker_niceness", "0")

tune_process()  # as the command does: a model is loaded without full collections of all that is imported

if "PYTEST_XDIST_WORKER" in os.environ:
    pl.thread_pool_size()  # starts the threads
    os.environ.pop("POLARS_MAX_THREADS", None)  # what a test starts has as many as on a user's machine


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(specs: list[Any]) -> None:
    """Give each of several processes one thread of Polars: threads that wait for a core cost a sixth of their time."""
    if len(specs) > 1:
        os.environ.setdefault("POLARS_MAX_THREADS", "1")


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Send files that share what takes long to make to the same process; called where there are several."""
    from tests.together import TogetherScheduling

    return TogetherScheduling(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put what takes longest first, so that processes which share the files end at about the same time."""
    if hasattr(config, "workerinput"):
        slow = {item.path for item in items if item.get_closest_marker("slow")}
        items.sort(key=lambda item: (place_of(item.nodeid.partition("::")[0])[0], item.path not in slow))


@pytest.hookimpl(trylast=True)
def pytest_unconfigure() -> None:
    end_process()  # as a command does


@pytest.fixture(scope="session", autouse=True)
def _unsynced_files() -> Iterator[None]:
    """Leave it to the system when files are on the disk: a small run would wait for that a tenth of its time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)  # fails for what is no file, too
        yield


@pytest.fixture(scope="session", autouse=True)
def _own_cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep what tests convert and remember out of the user's cache folder."""
    if "EVALUATOR_CACHE" in os.environ:
        yield
        return
    os.environ["EVALUATOR_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    yield
    del os.environ["EVALUATOR_CACHE"]


@pytest.fixture(scope="session", autouse=True)
def _validated_charts() -> Iterator[None]:
    """Validate every chart that a test compiles, the same chart once: evaluator/report/figures.py does not."""
    to_vega, valid = vl_convert.vegalite_to_vega, set[str]()

    def validated(spec: dict[str, Any], **options: Any) -> Any:
        if (text := json.dumps(spec)) not in valid:
            alt.Root.validate(spec)
            valid.add(text)
        return to_vega(spec, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vl_convert, "vegalite_to_vega", validated)
        yield


WITHOUT_FIGURES = {
    "api",
    "compare",
    "datasets",
    "decide",
    "decisions",
    "end_to_end",
    "engine",
    "exports",
    "imports",
    "in_context_pvi",
    "methods",
    "run",
    "runs",
    "tests",
}
"""Folders whose tests run much and read no figure of a page, but for some modules."""
WITH_FIGURES = {"test_board", "test_command_line", "test_prompt_search", "test_report", "test_report_figures"}


@pytest.fixture(scope="module", autouse=True)
def _empty_figures(request: pytest.FixtureRequest) -> Iterator[None]:
    """Draw empty figures where no test reads one: a small run is a quarter faster."""
    with pytest.MonkeyPatch.context() as patch:
        if request.path.parent.name in WITHOUT_FIGURES and request.path.stem not in WITH_FIGURES:
            patch.setattr(vl_convert, "vega_to_svg", lambda _spec: "<svg></svg>")
        yield


@pytest.fixture(scope="session")
def real_prompts() -> pl.DataFrame:
    """The first query of every dataset behind four demonstrations, twice, in the columns of Suite.requests."""
    return pl.concat([pl.concat(normal_requests(load_staicc(name), n_shots=4, n_queries=1)) for name in SOURCES])


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory, real_prompts: pl.DataFrame) -> Path:
    """Folder of a random Llama; its tokenizer learned few merges from real prompts, so labels take several tokens."""
    folder = tmp_path_factory.mktemp("models") / "tiny-llama"
    size = LlamaSize(vocab_size=1024, context_length=2048)
    return make_random_llama(folder, texts=real_prompts["prompt"], size=size)


@pytest.fixture(scope="session")
def tiny_source(tiny_model: Path) -> ModelSource:
    return find_model(ModelConfig(model=str(tiny_model)))


@pytest.fixture(scope="session")
def loaded_engine(tiny_source: ModelSource, tiny_model: Path) -> Iterator[Callable[[str], Engine]]:
    """Return a function from a name to an engine over the tiny model in fp32, which tests share.

    A step of vLLM is so small, and its cache as well, that prompts are computed in chunks and push each other out.
    """

    def by_name(name: str) -> Engine:
        if name not in LOADED:
            config = ModelConfig(
                model=str(tiny_model), engine=name, dtype="float32", kv_cache_gib=_cache_gib(tiny_source)
            )
            with pytest.MonkeyPatch.context() as patch:
                small = {
                    kind: settings._replace(max_tokens=256, max_sequences=256) for kind, settings in SETTINGS.items()
                }
                patch.setattr(vllm_settings, "SETTINGS", small)
                LOADED[name] = load_engine(tiny_source, config)
        return LOADED[name]

    yield by_name
    close_engines(*[*LOADED])


def _cache_gib(source: ModelSource) -> float:
    return 3_072 * source.kv_values_per_token * 4 / 2**30


@pytest.fixture(params=["fake", "transformers", "vllm"])
def engine(request: pytest.FixtureRequest, loaded_engine: Callable[[str], Engine]) -> Engine:
    """Every engine in turn."""
    return loaded_engine(request.param)


MODEL_ENGINES = ["transformers", "vllm"]
if shutil.which("nvidia-smi") or os.environ.get("VLLM_USE_V2_MODEL_RUNNER") == "1":
    # Model runner V2, as it is in versions of vLLM that cannot name tokens for several positions of a prompt.
    MODEL_ENGINES.append("vllm by prompt_logprobs")


@pytest.fixture(params=MODEL_ENGINES)
def model_engine(
    request: pytest.FixtureRequest, loaded_engine: Callable[[str], Engine], monkeypatch: pytest.MonkeyPatch
) -> Engine:
    """Every engine that runs a model, whose numbers can be compared with another's."""
    name, _, way = request.param.partition(" by ")
    engine = loaded_engine(name)
    if way:
        monkeypatch.setattr(engine, "_scores_several_rows", False)
    return engine


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    """Headless Chromium that keeps its console and network logs."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if chromium is None or driver is None:
        absent(
            "browser", "no chromium with chromedriver on the path (Debian: apt-get install chromium chromium-driver)"
        )
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    for flag in ("headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-sync"):
        options.add_argument(f"--{flag}")
    for flag in ("disable-background-networking", "disable-component-update", "window-size=1280,900"):
        options.add_argument(f"--{flag}")
    options.add_argument(f"--user-data-dir={tmp_path_factory.mktemp('chromium')}")
    driven = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield driven
    driven.quit()


@pytest.fixture(scope="module")
def without_pages() -> Iterator[None]:
    """For tests that read no page: runs write an empty one, and are a third faster."""

    def empty(_run: object, path: Path) -> Path:
        write_bytes(path, sealed(b"<!doctype html>"))
        return path

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("evaluator.run.pipeline.write_run_page", empty)
        yield


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a test that reads a page, in a module of others that read none."""
    monkeypatch.setattr("evaluator.run.pipeline.write_run_page", write_run_page)


@pytest.fixture
def narrow(browser: webdriver.Chrome) -> Iterator[None]:
    """The browser as wide as a phone."""
    size = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    yield
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.fixture(scope="session")
def run_folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Four models of a million to a billion parameters; nothing may write to them."""
    return four_runs(tmp_path_factory.mktemp("runs"))
