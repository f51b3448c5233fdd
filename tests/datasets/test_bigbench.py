import json

import polars as pl
import pytest

from evaluator.config import DataOptions
from evaluator.datasets.multiple_choice import load_task_json
from evaluator.datasets.sources import load_datasets
from evaluator.errors import DatasetError
from tests.shared_data import shared_data

TASK = {
    "task_prefix": "Answer.\n",
    "example_output_prefix": "\nTherefore: ",
    "append_choices_to_input": False,
    "examples": [
        {"input": "sky?", "target_scores": {"blue": 1, "green": 0}},
        {"input": "grass?", "target_scores": {"blue": 0, "green": 1, "teal": 0.5}},
        {"input": "sky?", "target_scores": {"blue": 1, "green": 0}},
        {"input": "sea?", "target_scores": {"blue": 1, "green": 1, "red": 0}},
    ],
}


def write(folder, task, name="task.json"):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(task if isinstance(task, str) else json.dumps(task))
    return path


def test_a_task_keeps_its_prefixes_and_drops_exact_repeats_with_a_note(tmp_path):
    dataset = load_task_json(write(tmp_path, TASK), "colours")
    assert dataset.examples["example_id"].to_list() == ["0", "1", "3"]
    assert dataset.examples["correct"].to_list() == [[0], [1], [0, 1]]
    assert dataset.notes == ("exact repeats of an example, of which the first is kept: 1",)
    # Published `inputs`: task prefix, default "\nQ: ", no choices, output prefix, white space around it stripped.
    inputs = dataset.examples.select(dataset.template.inputs(pl.col("input"), pl.col("shown_choices"))).to_series()
    assert inputs[0] == "Answer.\n\nQ: sky?\nTherefore:"


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("{", "is damaged or not JSON"),
        ("[]", "an object was expected, got list"),
        ({"name": "x"}, "no list of `examples`"),
        ({"examples": [{"input": "a", "target": "b"}]}, r"row 0 .*no `target_scores`"),
        ({"examples": [{"input": "a", "target_scores": {"b": "1", "c": 0}}]}, r"row 0 .*all finite numbers"),
        ({"examples": [{"input": "a", "target_scores": {"b": 0, "c": 0}}]}, r"row 0 .*no choice .*is correct"),
        ({"examples": [{"input": "a", "target_scores": {"": 1, "c": 0}}]}, r"row 0 .*missing or blank"),
        ('{"examples": [{"input": "a", "target_scores": {"b": 1, "b": 0}}]}', r"row 0 .*'b' occurs twice"),
        ({"task_prefix": 3, "examples": TASK["examples"]}, r"prefixes must be texts.*task_prefix"),
    ],
)
def test_a_malformed_task_is_refused_with_its_file_and_row(tmp_path, task, message):
    path = write(tmp_path, task)
    with pytest.raises(DatasetError, match=message) as refused:
        load_task_json(path, "task")
    assert str(path) in str(refused.value)


def test_a_folder_gives_every_task_below_it_by_its_place(tmp_path):
    write(tmp_path, TASK, "colours/task.json")
    write(tmp_path, TASK, "logic/three/task.json")
    assert [dataset.name for dataset in load_datasets((), DataOptions(paths=(tmp_path,)))] == ["colours", "logic/three"]


def test_the_fingerprint_follows_content_and_prefixes_and_not_the_place(tmp_path):
    first = load_task_json(write(tmp_path, TASK, "a/task.json"), "t").fingerprint
    assert load_task_json(write(tmp_path, TASK, "b/task.json"), "t").fingerprint == first
    other = TASK | {"examples": TASK["examples"][1:]}
    assert load_task_json(write(tmp_path, other, "c/task.json"), "t").fingerprint != first


def test_every_task_of_bigbench_lite_has_the_rows_and_choices_its_index_states():
    folder = shared_data("bigbench_lite")
    stated = json.loads((folder / "tasks.json").read_text())["tasks"]
    loaded = {dataset.name: dataset for dataset in load_datasets((), DataOptions(paths=(folder,)))}
    assert loaded.keys() == stated.keys()
    for name, task in stated.items():
        sizes = loaded[name].examples["choices"].list.len().value_counts().sort("choices").rows()
        expected = {int(size): count for size, count in task["choice_counts"].items()}
        if name == "logical_deduction_4choice":
            # Its 300 three-object rows repeat a choice, as the folder's README says; it counts once.
            expected = {3: 300, 4: 1200}
            assert loaded[name].notes == ("examples that repeat a choice, which counts once: 300",)
        assert dict(sizes) == expected
    # The README: two rows of novel_concepts have two right choices; rows of strange_stories have half points.
    assert loaded["novel_concepts"].examples["correct"].list.len().value_counts().sort("correct").rows() == [
        (1, 30),
        (2, 2),
    ]
    assert loaded["strange_stories"].examples["correct"].list.len().unique().to_list() == [1]
    assert loaded["logical_deduction"].examples["example_id"].is_unique().all()


def test_an_input_of_bigbench_lite_reads_as_its_published_form():
    (dataset,) = load_datasets((), DataOptions(paths=(shared_data("bigbench_lite") / "emoji_movie.parquet",)))
    text = dataset.examples[:1].select(dataset.template.inputs(pl.col("input"), pl.col("shown_choices"))).item()
    # The README's rule, its step 3 to 4, put together by hand with the order in which the choices are shown.
    shown = "".join(f"\n  choice: {choice}" for choice in dataset.examples["shown_choices"][0])
    assert text == f"Q: What movie does this emoji describe? 👧🐟🐠🐡{shown}\nA:"


def test_a_lite_file_with_fewer_scores_than_choices_is_refused(tmp_path):
    (tmp_path / "tasks.json").write_text(json.dumps({"tasks": {"t": {}}}))
    rows = {"input": ["a"], "choices": [["b", "c"]], "scores": [[1.0]], "subtask": [""], "row": [0]}
    pl.DataFrame(rows).write_parquet(tmp_path / "t.parquet")
    with pytest.raises(DatasetError, match=r"t\.parquet, row 0 .*2 choices need as many scores"):
        list(load_datasets((), DataOptions(paths=(tmp_path / "t.parquet",))))
