"""The pages of the project name only what is there, their examples give what they say, and they build a site."""

import doctest
import json
import re
import shlex
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
import numpy as np
import polars as pl
import pytest
from sphinx.search.en import SearchEnglish

import evaluator
from benchmarks.end_to_end import real_models
from evaluator.cli.main import cli
from tests import option_table
from tests.command_line import command
from tests.engine import architectures

ROOT = Path(__file__).parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
CODE = re.compile(r"```\w*\n(?P<block>.*?)```|`(?P<inline>[^`]+)`", re.DOTALL)
NOTATION = re.compile(r"[\[\]]|\.\.\.|\|[\w-]+")  # of what may be left out, repeated, or chosen from
SEARCHES = [
    ("load my own csv", "own-data"),
    ("which model is better", "comparing"),
    ("gguf", "models"),
    ("openai", "decisions"),
]
MAKE_TARGETS = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def commands(page: Path, program: str) -> list[list[str]]:
    """Return the words after `program` of every command line on a page, in a block of the console or in a sentence."""
    found = []
    for code in CODE.finditer(page.read_text()):
        prompts = re.findall(r"^\$ ((?:.*\\\n)*.*)", code["block"] or "", re.MULTILINE)
        lines = prompts if code["block"] else [" ".join(code["inline"].split())]
        typed = (line.removeprefix(".venv/bin/").replace("\\\n", " ") for line in lines)
        words = [
            shlex.split(NOTATION.sub(" ", line), comments=True) for line in typed if line.startswith(f"{program} ")
        ]
        found += [rest for _, *rest in words]
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_has_a_name_and_options_that_it_takes(page: Path) -> None:
    for name, *words in commands(page, "evaluator"):
        command = cli.commands[name]
        context = click.Context(command, info_name=name)
        command.make_parser(context).parse_args([word for word in words if word != "--help"])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_target_of_make_and_every_module_is_there(page: Path) -> None:
    for target, *_ in commands(page, "make"):
        assert target in MAKE_TARGETS
    for words in commands(page, "python"):
        assert words[0] != "-m" or find_spec(words[1])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_to_a_file_leads_to_one(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text())
    assert [link for link in links if ":" not in link and not (page.parent / link).exists()] == []


def test_lines_of_pip_name_extras_that_exist_and_the_wheel_that_make_dist_writes() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = [what for page in PAGES for what in re.findall(r"pip install '([^']+)'", page.read_text())]
    extras = {extra for what in named for names in re.findall(r"\[(.*?)\]", what) for extra in names.split(",")}
    assert {"vllm", "vllm-cpu", "sklearn"} <= extras <= {*project["optional-dependencies"]}
    wheels = {what.partition("[")[0] for what in named if ".whl" in what}
    assert wheels == {f"dist/{project['name']}-{project['version']}-py3-none-any.whl"}


def test_commands_are_found_in_blocks_and_sentences() -> None:
    found = [name for page in PAGES for name, *_ in commands(page, "evaluator")]
    assert set(cli.commands) <= {*found}
    for page in PAGES:  # every line that is typed in a block is parsed
        typed = re.findall(r"^\$ (?:\.venv/bin/)?(?:evaluator|make|python) ", page.read_text(), re.MULTILINE)
        parsed = [words for program in ("evaluator", "make", "python") for words in commands(page, program)]
        assert len(parsed) >= len(typed), page


def test_the_table_of_options_is_what_the_commands_take() -> None:
    page = option_table.PAGE.read_text()
    assert option_table.with_table(page) == page  # `make golden` writes it again


def test_the_page_of_models_has_the_text_that_make_models_writes() -> None:
    page = (ROOT / "docs" / "models.md").read_text()
    assert page.startswith(architectures.PAGE.partition("Below, a tiny")[0])
    assert page.endswith(architectures.PAGE.partition("{rows}")[2])


@pytest.mark.parametrize("name", ["metrics", "methods", "confidences"])
def test_worked_numbers_are_what_the_code_gives(name: str) -> None:
    result = doctest.testfile(str(ROOT / "docs" / f"{name}.md"), module_relative=False)
    assert result.attempted > 0
    assert result.failed == 0


def test_the_pages_build_a_site_without_a_warning(tmp_path: Path) -> None:
    settings = re.search(r"sphinx-build (.*) --conf-dir docs . build/site", (ROOT / "Makefile").read_text())
    assert settings
    command = [sys.executable, "-m", "sphinx", *settings[1].split(), "--conf-dir", "docs", ".", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True)
    site = tmp_path / "docs"
    assert {page.stem for page in site.glob("*.html")} == {page.stem for page in (ROOT / "docs").glob("*.md")}
    assert "InContextClassifier" in (site / "api.html").read_text("utf-8")
    index = (tmp_path / "searchindex.js").read_text("utf-8").removeprefix("Search.setIndex(").removesuffix(")")
    found = {query: pages_with(query, json.loads(index)) for query, _ in SEARCHES}
    assert [(query, page, found[query]) for query, page in SEARCHES if f"docs/{page}" not in found[query]] == []


def pages_with(query: str, index: dict[str, Any]) -> set[str]:
    """Return the pages that have every word of a query, in the text or in a title, as the site's search finds them."""
    language = SearchEnglish({})
    words = [language.stem(word) for word in language.split(query) if language.word_filter(word)]
    numbers = [np.hstack([index[of].get(word, []) for of in ("terms", "titleterms")]).astype(int) for word in words]
    return {index["docnames"][number] for number in set.intersection(*map(set, numbers))}


@pytest.mark.usefixtures("without_pages")
def test_the_tutorial_gives_what_it_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = ROOT / "docs" / "tutorial-threshold.md"
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```(console|text|toml)\n(.*?)```", page.read_text(), re.DOTALL)
    shown = {kind: block for kind, block in blocks if kind != "console"}
    assert (ROOT / "docs" / "tutorial" / "tickets.csv").read_text().startswith(shown["text"])
    assert (ROOT / "docs" / "tutorial" / "questions.toml").read_text() == shown["toml"]
    for block in (block for kind, block in blocks if kind == "console"):
        for typed in re.findall(r"^\$ ((?:.*\\\n)*.*)\n((?:[^$].*\n)*)", block, re.MULTILINE):
            name, *words = shlex.split(typed[0].replace("\\\n", " "))
            assert name == "evaluator"
            printed = command(*words).splitlines()
            assert [line for line in typed[1].splitlines() if line != "..." and line not in printed] == []
    answers = pl.read_parquet(tmp_path / "runs" / "tickets" / "tables" / "predictions.parquet")
    used = answers.filter(pl.col("label_probs").list.max() >= 0.5227)
    assert (used.height, (used["pred"] == used["gold"]).sum()) == (103, 100)  # 0.343 and 0.971 of the page
    readers = pl.read_csv("docs/tutorial/tickets.csv")["reader"].n_unique()
    report = evaluator.threshold_report("runs/tickets", target=0.9, group_column="reader")
    assert [each.n_groups for each in report.file.thresholds] == [readers]


def test_the_tables_of_real_models_are_made_from_their_rows_and_the_readme_has_the_same_numbers() -> None:
    rows, page = pl.read_csv(real_models.ROWS), real_models.PAGE.read_text()
    assert real_models.with_tables(page, rows) == page
    readme = " ".join((ROOT / "README.md").read_text().split())
    whole = rows.filter(kind=real_models.WHOLE, metric="accuracy")
    for row in whole.filter(dataset="mean").iter_rows(named=True):
        wanted = f"{row['value']:.3f} ({row['ci_low']:.3f} to {row['ci_high']:.3f})"
        assert f"{row['model']}, mean accuracy {wanted}" in readme
        of_datasets = whole.filter(pl.col("dataset") != "mean", model=row["model"])
        assert of_datasets.height == 10
        assert of_datasets["value"].mean() == pytest.approx(row["value"], abs=1e-12)
        assert set(of_datasets["n_requests"]) == {1024}
