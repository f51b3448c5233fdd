"""Streams that nobody reads, machines with little, and names with control codes: a run ends as it does elsewhere."""

import json
import os
import subprocess
import sys
from pathlib import Path
from threading import Thread

import altair as alt
import polars as pl
import pytest

from evaluator.cli import terminal
from evaluator.errors import plural
from evaluator.progress import Progress
from evaluator.report.figures import compiled, draw_svg
from evaluator.run.folders import read_run
from tests.command_line import command_outputs

SMALL = ["staicc-normal", "--datasets", "sst5", "--queries", "4"]
BUILD = [sys.executable, "-m", "evaluator", "build", *SMALL]
RUN = ["run", *SMALL, "--model", "fake", "--engine", "fake"]


def ended(out: Path) -> bool:
    return read_run(out).prompts is not None


def test_a_reader_of_the_progress_that_goes_away_does_not_end_the_run(tmp_path: Path) -> None:
    run = subprocess.Popen([*BUILD, "--out", tmp_path / "out"], stderr=subprocess.PIPE)
    assert run.stderr
    run.stderr.close()
    assert run.wait() == 0
    assert ended(tmp_path / "out")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
def test_a_full_disk_under_the_progress_does_not_end_the_run(tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        assert subprocess.run([*BUILD, "--out", tmp_path / "out"], stderr=full).returncode == 0
    assert ended(tmp_path / "out")


def test_a_standard_error_that_is_closed_from_the_start_does_not_end_a_command(tmp_path: Path) -> None:
    closed = ["sh", "-c", 'exec "$@" 2>&-', "sh"]
    assert subprocess.run([*closed, *BUILD, "--out", tmp_path / "out"]).returncode == 0


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
def test_a_full_disk_under_the_output_is_a_mistake_that_the_user_can_fix() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "evaluator", "suites"], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("Error: [Errno 28] No space left on device.")


def test_a_terminal_that_goes_away_does_not_end_the_run(tmp_path: Path) -> None:
    terminal_end, process_end = os.openpty()
    run = subprocess.Popen([*BUILD, "--out", tmp_path / "out"], stderr=process_end)
    os.close(process_end)
    os.close(terminal_end)
    assert run.wait() == 0
    assert ended(tmp_path / "out")


def test_a_machine_without_another_thread_shows_progress(monkeypatch: pytest.MonkeyPatch, capfd) -> None:
    def refuse(_thread: Thread) -> None:
        raise RuntimeError("can't start new thread")

    def stage():
        yield Progress(stage="Scoring", done=1, total=1, unit="prompts")
        return 7

    monkeypatch.setattr(Thread, "start", refuse)
    assert terminal.draw(stage()) == 7
    assert "Scoring: 1 of 1 prompts" in capfd.readouterr().err


def test_a_user_without_a_home_gets_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def home() -> Path:
        if "HOME" not in os.environ:
            raise RuntimeError("Could not determine home directory.")
        return Path(os.environ["HOME"])

    monkeypatch.setattr(Path, "home", home)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delenv("HOME")
    folder = tmp_path / f"evaluator-{os.getuid()}"
    assert f"what is kept between runs is in {folder}" in command_outputs("list", tmp_path).err
    assert os.environ["HOME"] == str(folder)
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.rmdir()
    folder.symlink_to(tmp_path)
    monkeypatch.delenv("HOME")
    assert "is another user's. Set HOME to a folder." in command_outputs("list", tmp_path, exits=2).err


def test_control_codes_of_a_file_are_written_out(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text("text\x1b]0;owned\x07,gold\nred,a\nblue,b\n")
    words = ["run", "classify", "--data", table, "--input-column", "text", "--gold-column", "gold", "--model", "fake"]
    message = command_outputs(*words, "--engine", "fake", "--out", tmp_path / "out", exits=2).err
    assert "\\x1b]0;owned\\x07" in message
    assert "\x1b" not in message


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--out", ""], "--out is empty. Give a path, or . for the current folder."),
        (["--out", "o\x1bx"], "--out holds the control code \\x1b"),
        (["--out", "o", "--datasets", ","], "--datasets takes names with commas between them, received ','"),
        (["--out", "o", "--parts", ""], "--parts takes names with commas between them, received ''"),
    ],
)
def test_an_empty_or_disguised_name_is_refused(words: list[str], message: str) -> None:
    assert message in command_outputs("build", "staicc-normal", *words, exits=2).err


@pytest.mark.parametrize(
    "words",
    [
        ["run", "classify", "--data", "t.csv", "--out", "o", "--model"],
        ["run", "classify", "--model", "m", "--out", "o", "--data"],
        ["run", "classify", "--data", "t.csv", "--model", "m", "--out", "o", "--adapter"],
        ["run", "classify", "--data", "t.csv", "--model", "m", "--out", "o", "--gold-column"],
        ["preflight", "classify", "--data", "t.csv", "--model"],
        ["score", "o", "--model"],
        ["doctor", "--model"],
        ["receipt", "o", "--model"],
        ["import", "t.csv", "--out", "o", "--model"],
        [
            "ask",
            "--data",
            "t.csv",
            "--questions",
            "q",
            "--url",
            "http://h",
            "--protocol",
            "gemini",
            "--out",
            "o",
            "--model",
        ],
    ],
    ids=lambda words: f"{words[0]} {words[-1]}",
)
def test_a_blank_text_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("text,label,pred,gold\na,b,c,d\n")
    for blank in ("", "  "):
        message = command_outputs(*words, blank, exits=2).err
        assert f"{words[-1]} is blank, as an unset variable of a shell is." in " ".join(message.split())
    assert os.listdir(tmp_path) == ["t.csv"]


def test_a_locale_that_is_not_utf_8_is_named(tmp_path: Path) -> None:
    environment = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    run = subprocess.run(
        [sys.executable, "-m", "evaluator", "list", tmp_path / "na\u00efve"], env=environment, capture_output=True
    )
    assert run.returncode == 2
    assert b"Set LC_ALL=C.UTF-8, or PYTHONUTF8=1." in run.stderr


DATA = "a table of the columns text and label"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["build", "clasify"], "'clasify'. Did you mean 'classify'? There are: staicc, classify, "),
        (["build", "staicc-normal", "--datasets", "SST5"], "'SST5'. Did you mean 'sst5'?"),
        (["build", "staicc-normal", "--datasets", "sst2"], "'glue_sst2'? There are: "),
        (["build", "staicc-normal", "--methods", "calibrated"], "Did you mean 'contextual_calibration' or "),
        (["build", "staicc-normal", "--parts", "norml"], "'norml' in staicc-normal. Did you mean 'normal'?"),
        (
            ["build", "classify", "--data", DATA, "--gold-column", "lable"],
            "'lable'. Did you mean 'label'? It has: text,",
        ),
        (["build", "classify", "--data", DATA, "--input-column", "Text"], "'Text'. Did you mean 'text'?"),
        (["run", "classify", "--model", "m", "--engine", "vlm"], "no engine 'vlm'. Did you mean 'vllm'?"),
        (["build", "classify", "--definition", "papper"], "'papper' is not one of 'all', 'paper', 'released'"),
        (["build", "staicc-normal", "--limit", "8"], "No such option '--limit'. Did you mean '--queries'?"),
    ],
)
def test_a_name_that_is_nearly_right_is_suggested(words: list[str], message: str, tmp_path: Path) -> None:
    (tmp_path / "reviews.csv").write_text("text,label\ngood,yes\nbad,no\n")
    given = [tmp_path / "reviews.csv" if word == DATA else word for word in words]
    assert message in command_outputs(*given, "--out", tmp_path / "o", exits=2).err


def test_a_format_that_is_nearly_right_is_suggested(tmp_path: Path) -> None:
    run = ("run", "classify", "--datasets", "sst5", "--queries", 4, "--model", "fake", "--engine", "fake")
    command_outputs(*run, "--out", tmp_path)
    for given, meant in (("tex", "latex"), ("CSV", "csv"), ("markdwn", "markdown")):
        said = command_outputs("export", tmp_path, "--format", given, exits=2).err
        assert f"no format '{given}'. Did you mean '{meant}'? There are: csv, " in said
    assert (
        "'vanila'. Did you mean 'vanilla'" in command_outputs("threshold", tmp_path, "--method", "vanila", exits=2).err
    )


NAMES = ["a\u2028b", "a\u0085b", "a\x1bb", "a\nb", "a\tb", "a\x01b"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("place", ["file", "cell", "label"])
def test_a_name_of_several_lines_is_refused_where_it_enters(tmp_path: Path, name: str, place: str) -> None:
    row = {
        "dataset": name if place == "cell" else "d",
        "gold": 0,
        "label_names": [name if place == "label" else "x", "y"],
    }
    rows = [row | {"label_log_likelihoods": [-1.0, -2.0 - n]} for n in range(3)]
    answers = tmp_path / "answers.jsonl"
    answers.write_text("".join(f"{json.dumps(each)}\n" for each in rows))
    folder = tmp_path / "tables"
    folder.mkdir()
    table = folder / f"{name if place == 'file' else 'table'}.jsonl"
    texts = [{"text": f"t {n}", "label": name if place == "label" and n % 2 else f"l{n % 2}"} for n in range(8)]
    table.write_text("".join(f"{json.dumps(each)}\n" for each in texts))
    message = "a line break, a tab or another control code"
    if place != "file":
        words = ["import", answers, "--dataset-column", "dataset", "--out", tmp_path / "imported"]
        assert message in command_outputs(*words, exits=2).err
    if place != "cell":
        words = ["build", "classify", "--data", folder, "--out", tmp_path / "out"]
        assert message in command_outputs(*words, exits=2).err


def test_a_file_whose_name_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    with open(os.fsencode(tmp_path) + b"/b\xff.csv", "wb") as file:
        file.write(b"text,label\nred,a\nblue,b\n")
    message = command_outputs("build", "classify", "--data", tmp_path, "--out", tmp_path / "out", exits=2).err
    assert "b\\udcff" in message


def test_a_chart_of_names_with_control_codes_is_drawn() -> None:
    names = [*NAMES, "\0", "\udcff", "\uffff"]
    table = pl.DataFrame({"x": range(len(names))})
    chart = alt.layer(alt.Chart(alt.NamedData("rows"), title=names).mark_point().encode(x="x:Q", text="n:N"))
    assert "a\\u2028b" in draw_svg(compiled(chart.to_dict()), rows=table)
    spec = compiled(alt.layer(alt.Chart(alt.NamedData("rows")).mark_text().encode(x="x:Q", text="n:N")).to_dict())
    drawn = draw_svg(spec, rows=pl.DataFrame({"n": [name for name in names if name != "\udcff"]}).with_row_index("x"))
    assert "a\\u2028b" in drawn


def test_pythons_functions_without_docstrings_are_refused_in_a_sentence() -> None:
    words = "import evaluator\nfor name in ('evaluate', 'InContextClassifier'):\n  try: getattr(evaluator, name)"
    words += "\n  except evaluator.errors.ConfigError as error: print(error)"
    done = subprocess.run([sys.executable, "-OO", "-c", words], check=True, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    assert [line.split(":")[0] for line in lines] == ["evaluator.evaluate", "evaluator.InContextClassifier"]
    assert all("Start Python with -O, or with PYTHONOPTIMIZE=1." in line for line in lines)


@pytest.mark.parametrize(
    "flags", [pytest.param("-O", marks=pytest.mark.exhaustive), "-OO"]
)  # it does what -O does, too
def test_a_run_without_asserts_and_docstrings_gives_the_same_tables(tmp_path: Path, flags: str) -> None:
    command_outputs(*RUN, "--out", tmp_path / "plain")
    words = [sys.executable, flags, "-m", "evaluator", *RUN, "--out", tmp_path / "optimised"]
    subprocess.run(words, check=True, capture_output=True)
    assert (tmp_path / "optimised" / "report.html").is_file()
    tables = [(tmp_path / name / "tables" / "metrics.parquet").read_bytes() for name in ("plain", "optimised")]
    assert tables[0] == tables[1]


@pytest.mark.parametrize("text", ["1 query", "0 queries", "1,024 queries", "1 batch", "2 batches", "1 row", "2 rows"])
def test_a_count_of_one_has_a_noun_in_the_singular(text: str) -> None:
    number, noun = text.split()
    assert plural(int(number.replace(",", "")), {"q": "query", "b": "batch", "r": "row"}[noun[0]]) == text
