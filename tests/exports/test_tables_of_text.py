"""CSV, Markdown, LaTeX and model-index: each read by a reader of that format, and compared with the run's table."""

import csv
import io
import re
from dataclasses import replace
from html import unescape
from itertools import pairwise

import polars as pl
import pytest
from huggingface_hub import ModelCard
from markdown_it import MarkdownIt

from evaluator.exports import FORMATS
from evaluator.exports.base import ExportedRun
from evaluator.exports.metrics_tables import comparison_file
from evaluator.redaction import csv_text
from tests.report.made_record import made_record

HEADLINES = ("accuracy", "true_label_probability", "macro_f1", "expected_calibration_error")
BASELINES = ("chance", "majority", "max_random")


def text_of(name: str, exported: ExportedRun) -> str:
    [file] = FORMATS[name].files(exported)
    return file.content.decode()


def expected_rows(exported: ExportedRun) -> list[list[str]]:
    """Cells of every table, worked out from the metrics row by row: value [low, high], then baselines of accuracy."""
    rows = []
    for method in ("vanilla", "topk"):
        for definition in ("paper", "released", "published"):
            for dataset in [*exported.record.prompts.datasets, "mean"]:
                about = exported.metrics.filter(method=method, definition=definition, dataset=dataset)
                measured = [about.filter(metric=metric).row(0, named=True) for metric in HEADLINES]
                cells = [f"{row['value']:.3f} [{row['ci_low']:.3f}, {row['ci_high']:.3f}]" for row in measured]
                name = "Mean over datasets" if dataset == "mean" else dataset
                rows.append([name, *cells, *(f"{measured[0][column]:.3f}" for column in BASELINES)])
    return rows


def test_csv_holds_the_table_of_metrics(made):
    text = text_of("csv", made)
    rows = list(csv.DictReader(text.splitlines()))
    assert len(rows) == made.metrics.height
    for row, measured in zip(rows, made.metrics.iter_rows(named=True), strict=True):
        assert row["model"] == "acme/small_1"
        for column, value in measured.items():
            said = row[column]
            if isinstance(value, float):
                assert float(said) == value
            else:
                assert said.lower() == ("" if value is None else str(value).lower())


def test_markdown_shows_every_table_as_it_is(made):
    tokens = MarkdownIt("commonmark").enable("table").parse(text_of("markdown", made))
    rows: list[list[str]] = []
    for token, inline in pairwise(tokens):
        if token.type == "tr_open":
            rows.append([])
        elif token.type in ("td_open", "th_open"):
            rows[-1].append("".join(child.content for child in inline.children or ()))
    titles, cells = rows[0], [row for row in rows if row[0] != "Dataset"]
    assert titles[:2] == ["Dataset", "Accuracy ↑"]
    assert titles[4:] == ["Calibration error ↓", "Chance", "Majority", "Max random"]
    assert cells == expected_rows(made)


def test_a_name_of_a_dataset_is_text_above_its_column_of_a_comparison(made):
    accuracies = made.metrics.filter(metric="accuracy", method="vanilla", definition="paper")
    names = {name: f"*{name}*|b" for name in made.record.prompts.datasets}
    rows = accuracies.with_columns(pl.col("dataset").replace(names), number=pl.lit(1), model=pl.lit("acme/small"))
    file = comparison_file(rows, is_latex=False)
    shown = MarkdownIt("commonmark").enable("table").render(file.content.decode())
    assert [*map(unescape, re.findall(r"<th[^>]*>(.*?)</th>", shown))] == ["Model", *sorted(names.values()), "Mean"]


def test_a_comparison_of_two_datasets_has_their_mean_and_its_rows_are_in_the_order_of_the_runs(made):
    accuracies = made.metrics.filter(metric="accuracy", method="vanilla", definition="paper")
    rows = accuracies.filter(pl.col("dataset").is_in(["plain", "a|b*c", "mean"]))
    values = dict(rows.select("dataset", "value").rows())
    runs = [rows.with_columns(number=pl.lit(n), model=pl.lit(name)) for n, name in ((2, "alpha"), (1, "beta"))]
    lines = comparison_file(pl.concat(runs), is_latex=False).content.decode().splitlines()
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines if line.startswith("|")]
    assert [row[0] for row in cells] == ["Model", "---", "beta", "alpha"]
    shown = [f"{values[name]:.3f}" for name in ("a|b*c", "plain", "mean")]
    assert [cell.split(" ")[0] for cell in cells[2][1:]] == shown
    assert cells[0][3] == "Mean"


def test_markdown_folds_all_definitions_but_the_first(made):
    text = text_of("markdown", made)
    assert re.findall(r"<summary>.*definition (\w+)</summary>", text) == ["released", "published"] * 2
    assert text.count("<details>") == text.count("</details>") == 4


def test_markdown_says_that_made_up_numbers_are_made_up_and_which_dataset_failed(run, made):
    assert "a fake engine made these numbers up" in text_of("markdown", run)
    left_out = made_record(prompts={"left_out": {"odd": "It has | no rows."}})
    text = text_of("markdown", ExportedRun(**{**vars(made), "record": left_out}))
    assert r"Left out of every number and mean: odd. It has \| no rows." in text


def test_latex_has_a_cell_for_every_column_and_escapes_what_is_special(made):
    text = text_of("latex", made)
    read = [line for line in text.splitlines() if not line.startswith("%")]
    rows = [line.strip().removesuffix(r" \\") for line in read if line.endswith(r"\\")]
    cells = [[_plain(cell) for cell in re.split(r"(?<!\\)&", row)] for row in rows]
    assert {len(row) for row in cells} == {8}
    assert [row for row in cells if row[0] != "Dataset"] == expected_rows(made)
    for rule in ("toprule", "bottomrule"):
        assert text.count(f"\\{rule}") == 6
    unescaped = re.sub(r"\\[\\{}]", "", "\n".join(read))
    assert unescaped.count("{") == unescaped.count("}")
    assert re.findall(r"(?<!\\)[%#_~^]", "\n".join(read)) == []


def _plain(cell: str) -> str:
    """What LaTeX would show of a cell."""
    return re.sub(r"\\([&%$#_{}])", r"\1", re.sub(r"\{([\[\]])\}", r"\1", cell.strip()))


def test_the_hub_s_reader_finds_every_headline_in_a_model_index(made):
    card = ModelCard(f"---\n{text_of('model-index', made)}---\n")
    assert card.data.model_name == "acme/small_1"
    headlines = made.metrics.filter(pl.col("metric").is_in(HEADLINES))
    results = {(one.dataset_name, one.metric_type, one.metric_config): one for one in card.data.eval_results}
    assert len(results) == headlines.height
    for row in headlines.iter_rows(named=True):
        result = results[row["dataset"], row["metric"], f"{row['method']}/{row['definition']}"]
        assert result.metric_value == row["value"]
        assert result.metric_args == {name: row[name] for name in ("ci_low", "ci_high", "n_queries")}
        assert result.dataset_config == "staicc-normal/normal"


FORMULAS = ["=1+1", "+1+1", "-2+3", "@SUM(1)", "\t=1", "\r=1", "\n=1", "\uff1d1", "\uff0b1", "\uff0d1", "\uff201"]


@pytest.mark.parametrize("text", FORMULAS)
def test_csv_has_no_formula(made, text):
    named = replace(made, metrics=made.metrics.with_columns(dataset=pl.lit(text)))
    renamed = replace(named, record=replace(made.record, model=replace(made.record.model, name=text, kind="hub")))
    rows = csv.DictReader(io.StringIO(text_of("csv", renamed), newline=""))
    assert {(row["dataset"], row["model"]) for row in rows} == {(f"'{text}", f"'{text}")}
    assert text_of("csv", renamed).count("'") == 2 * made.metrics.height


@pytest.mark.parametrize("kind", [pl.String(), pl.Categorical(), pl.Enum(FORMULAS)])
def test_csv_of_figures_and_tables_has_no_formula_in_any_kind_of_text(kind):
    table = pl.DataFrame({"=name": pl.Series(FORMULAS).cast(kind), "n": range(-5, 6)})
    header, *rows = csv.reader(io.StringIO(csv_text(table), newline=""))
    assert header == ["'=name", "n"]
    assert rows == [[f"'{text}", str(n)] for text, n in zip(FORMULAS, range(-5, 6), strict=True)]


@pytest.mark.parametrize(
    ("text", "live"),
    [
        ("@octocat", r"@\w"),
        ("a@b.org", r"@\w"),
        ("#1", r"\\?#\d"),
        ("org/repo#12", r"\\?#\d"),
        ("GH-7", r"GH-\d"),
        ("http://x.y", "://"),
        ("HTTPS://x.y", "://"),
        ("www.x.y", r"www\."),
        ("o/r_#12", r"\\?#\d"),
        ("&commat;octocat", r"(?<!\\)&commat;"),
        ("<b>", r"(?<!\\)<b"),
        ("![x](y)", r"(?<!\\)!\["),
    ],
)
def test_markdown_mentions_and_links_nothing(made, text, live):
    left_out = made_record(prompts={"left_out": {text: f"see {text}"}})
    (line,) = [line for line in text_of("markdown", replace(made, record=left_out)).splitlines() if "Left out" in line]
    assert not re.search(live, line, re.IGNORECASE)
    shown = MarkdownIt("commonmark").parse(line)[1].children
    assert "".join(child.content for child in shown).replace("\u2060", "").count(text) == 2


def test_latex_sets_names_on_one_line(made):
    model = replace(made.record.model, name="a\n\nb\x1b", kind="hub")
    named = replace(made, record=replace(made.record, model=model))
    assert r"\caption{a b\textbackslash{}x1b: " in text_of("latex", named)
