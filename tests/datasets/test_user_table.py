"""How a user's labelled table becomes a dataset: formats, label names, the text around examples, careless input."""

import polars as pl
import pytest

from evaluator.config import DataOptions, TableColumns
from evaluator.datasets.labelled_table import read_labels
from evaluator.datasets.sources import load_datasets
from evaluator.errors import ConfigError, DatasetError, TemplateError
from evaluator.templates.template import MetaTemplate
from tests.datasets.sheets import sheet

REVIEWS = {
    "title": [f"Title {n}" for n in range(12)],
    "body": [f'Körper {n}, "quoted"' for n in range(12)],
    "stars": [1, 5, 4] * 4,
}
COLUMNS = TableColumns(inputs=("title", "body"), gold="stars")
WRITERS = {
    "csv": pl.DataFrame.write_csv,
    "jsonl": pl.DataFrame.write_ndjson,
    "parquet": pl.DataFrame.write_parquet,
    "arrow": pl.DataFrame.write_ipc,
    "xlsx": lambda frame, path: path.write_bytes(sheet([frame.columns, *frame.rows()])),
}


def table(folder, columns=REVIEWS, suffix="csv", name="reviews"):
    path = folder / f"{name}.{suffix}"
    WRITERS[suffix](pl.DataFrame(columns), path)
    return path


def load(path, columns=COLUMNS, **data):
    (dataset,) = load_datasets((), DataOptions(paths=(path,), columns=columns, **data))
    return dataset


def all_rows(dataset):
    return pl.concat([dataset.demonstration, dataset.test]).sort("source_row")


@pytest.mark.parametrize("suffix", WRITERS)
def test_every_format_gives_the_same_examples(tmp_path, suffix):
    rows = all_rows(load(table(tmp_path, suffix=suffix), labels={"1": "bad", "4": "great", "5": "great"}))
    assert rows["texts"].to_list() == [[*texts] for texts in zip(REVIEWS["title"], REVIEWS["body"], strict=True)]
    assert rows["gold"].to_list() == [0, 1, 1] * 4


def test_a_stream_of_arrow_is_read_as_a_file_of_it_is(tmp_path):
    path = tmp_path / "reviews.arrow"
    pl.DataFrame(REVIEWS).write_ipc_stream(path)
    assert all_rows(load(path)).height == 12


def test_named_labels_are_the_label_space_in_the_order_stated(tmp_path):
    dataset = load(table(tmp_path), labels=read_labels("5=great, 4=great,1=bad"))
    assert dataset.verbalizer.label_names == ("great", "bad")
    (tmp_path / "labels.toml").write_text('1 = "bad"\n5 = "great"\n')
    assert read_labels(str(tmp_path / "labels.toml")) == {"1": "bad", "5": "great"}


def test_a_cell_without_a_name_is_refused_with_its_row_and_the_names(tmp_path):
    path = table(tmp_path)
    with pytest.raises(DatasetError) as refused:
        load(path, labels={"1": "bad", "5": "great"})
    assert str(refused.value) == (
        f"{path}, row 2 (from 0): the label in stars is '4', none of 1, 5, as in 4 of 12 rows. "
        "Name every label, or remove these rows."
    )


def test_a_cell_that_writes_the_number_of_two_named_cells_differently_is_the_first(tmp_path):
    dataset = load(table(tmp_path), labels={"1.0": "bad", "4": "good", "5": "great", "1.00": "good"})
    assert dataset.verbalizer.label_names == ("bad", "good", "great")
    assert all_rows(dataset)["gold"].to_list() == [0, 2, 1] * 4


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        ("1=bad,great", "'great' is no cell=name"),
        ("1=bad,1=good", "the cell '1' has two names"),
        ("nowhere", r"nowhere is no file\. Give CELL=NAME,CELL=NAME, .*, or a TOML file"),
    ],
)
def test_labels_that_name_nothing_are_refused(stated, message):
    with pytest.raises(ConfigError, match=message):
        read_labels(stated)


def test_the_text_around_examples_is_made_from_the_columns_or_stated(tmp_path):
    path = table(tmp_path)
    made = MetaTemplate(
        input_prefixes=("title: ", "body: "), input_affixes=("\n", "\n"), label_prefix="stars: ", label_affix="\n\n"
    )
    assert load(path).template == made
    # An instruction is separated from the first demonstration as demonstrations are from each other.
    assert load(path, instruction="Judge.").template.instruction == "Judge.\n\n"
    (tmp_path / "reviews.toml").write_text(
        """
        instruction = "Is it good?\\n"
        input_prefixes = ["T: ", "B: "]
        label_prefix = "It is "
        label_affix = "\\n"
        labels = {1 = "bad", 4 = "good", 5 = "good"}
        instructions = ["Say. ", "Tell. "]
        alternatives.label_prefixes = ["so: ", "thus: "]
        """
    )
    dataset = load(path, template=tmp_path / "reviews.toml")
    assert dataset.template == MetaTemplate(
        instruction="Is it good?\n",
        input_prefixes=("T: ", "B: "),
        input_affixes=("\n", "\n"),
        label_prefix="It is ",
        label_affix="\n",
    )
    assert dataset.verbalizer.label_names == ("bad", "good")
    assert dataset.instructions == ("Say. ", "Tell. ")
    assert {template.label_prefix for template in dataset.alternative_templates} == {"It is ", "so: ", "thus: "}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            'instuction = "x"',
            r"there is no key 'instuction'. Did you mean 'instruction' or 'instructions'\? Keys are: instruction, ",
        ),
        ('alternatives.label_prefix = ["a", "b"]', "no key 'label_prefix'. Did you mean 'label_prefixes'"),
        ("label_prefix = 3", "`label_prefix` is a text; found a whole number"),
        ('input_prefixes = ["one: "]', r"has 1 input prefixes \['one: '\], but examples have 2 text fields"),
        ('input_affixes = [";"]', r"got the prefixes \['title: ', 'body: '\] and the affixes \[';'\]"),
        ('alternatives.input_prefixes = [["a: "], ["b: "]]', r"one input prefix and one input affix a text field, got"),
        ('alternatives.label_affixes = [" ", " "]', "has one level of `label_affix` twice, or the template's own"),
        (
            'label_prefix = "so: "\nalternatives.label_prefixes = ["so: ", "thus: "]',
            "one level of `label_prefix` twice",
        ),
        ('input_prefixes = ["T: ", "B: {body}"]', r"\{body\} is no hole, but text"),
        ('label_prefix = "{{ stars }}"', r"\{ stars \} is no hole, but text"),
        ("label_prefix = ", "is no TOML in UTF-8"),
    ],
)
def test_a_template_file_with_a_mistake_is_refused_with_its_name(tmp_path, content, message):
    (tmp_path / "mine.toml").write_text(content)
    with pytest.raises(TemplateError, match=rf"mine\.toml: .*{message}|mine\.toml {message}"):
        load(table(tmp_path), template=tmp_path / "mine.toml")


@pytest.mark.parametrize("separator", [",", ";", "\t", "|", "#"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_a_byte_that_is_no_utf_8_is_refused_with_row_and_column(tmp_path, mark, separator):
    path = tmp_path / "reviews.csv"
    stated = "sep=#\n" if separator == "#" else ""
    content = f'{stated}text,label\n"two\nlines",a\nna\u00efve,b\n'.replace(",", separator)
    path.write_bytes(mark + content.encode("cp1252"))
    with pytest.raises(DatasetError) as refused:
        load(path, TableColumns())
    assert (
        str(refused.value) == f"{path}, row 1 (from 0), column text: the byte 0xef is no UTF-8. Save the file as UTF-8."
    )
    path.write_text("text,label\na,b\n", encoding="utf-16")
    with pytest.raises(DatasetError, match="is in UTF-16"):
        load(path, TableColumns())


def test_a_spreadsheet_is_refused_with_what_to_do(tmp_path):
    (tmp_path / "reviews.ods").write_bytes(b"PK")
    with pytest.raises(DatasetError, match=r"must end in .csv, .*\. Save a spreadsheet as \.xlsx, or as CSV in UTF-8"):
        load(tmp_path / "reviews.ods")


def test_an_empty_cell_of_a_sheet_is_named_with_its_row(tmp_path):
    rows = [["title", "body", "stars"], *([f"Title {n}", "Text", 1 + n % 2] for n in range(4)), [None, "Text", 1]]
    (tmp_path / "reviews.xlsx").write_bytes(sheet(rows))
    with pytest.raises(DatasetError, match=r"reviews\.xlsx, row 4 \(from 0\): title is missing or empty"):
        load(tmp_path / "reviews.xlsx")


def test_a_first_sheet_without_cells_has_no_column(tmp_path):
    (tmp_path / "reviews.xlsx").write_bytes(sheet([[]]))
    with pytest.raises(DatasetError, match=r"reviews\.xlsx has no column 'stars'\. It has none\."):
        load(tmp_path / "reviews.xlsx")


def test_what_is_no_sheet_is_one_sentence(tmp_path):
    (tmp_path / "reviews.xlsx").write_bytes(b"PK")
    with pytest.raises(DatasetError, match=r"reviews\.xlsx cannot be read as an Excel file \(.*\)\. Save it again"):
        load(tmp_path / "reviews.xlsx")


def test_a_nul_in_a_text_is_refused_with_its_row(tmp_path):
    cells = {"text": ["a", "b", "c\0z", "d"], "label": ["x", "y", "x", "y"]}
    with pytest.raises(DatasetError, match=r"row 2 \(from 0\): text contains the character NUL"):
        load(table(tmp_path, cells), TableColumns())


def test_a_column_that_is_named_with_a_space_too_many_or_too_few_is_said_to_differ_in_spaces(tmp_path):
    for header, asked in (("label", " label"), ("label ", "label")):
        cells = {"text": ["a", "b", "c", "d"], header: ["x", "y", "x", "y"]}
        with pytest.raises(DatasetError, match=rf"no column '{asked}'.*'{header}'.*differ in spaces"):
            load(table(tmp_path, cells, name=header), TableColumns(gold=asked))


def test_careless_tables_are_refused_in_one_sentence(tmp_path):
    blank = table(tmp_path, {"text": ["a", "b", "c"], "label": ["x", " ", None]}, name="blank")
    with pytest.raises(
        DatasetError, match=r"row 1 \(from 0\): the label in label is missing or blank, as in 2 of 3 rows"
    ):
        load(blank, TableColumns())
    one = table(tmp_path, {"text": ["a", "b", "c"], "label": ["x"] * 3}, name="one")
    with pytest.raises(DatasetError, match=r"one\.csv: all 3 rows have the same label"):
        load(one, TableColumns())
    three = table(tmp_path, {"text": ["a", "b", "c"], "label": ["x", "x", "y"]}, name="three")
    with pytest.raises(DatasetError, match=r"only one row has the label 'y', row 2 "):
        load(three, TableColumns())
    repeated = table(tmp_path, {"text": ["a", "a", "b", "c"], "label": ["x", "x", "y", "y"]}, name="repeated")
    with pytest.raises(DatasetError, match=r"all 2 rows with the label 'x' occur in several rows"):
        load(repeated, TableColumns())


def test_repeated_texts_are_never_demonstrations_and_those_of_stated_files_are_counted(tmp_path):
    texts = {"text": ["a", "a", "b", "c", "d", "e"], "label": ["x", "y", "x", "x", "y", "y"]}
    dataset = load(table(tmp_path, texts), TableColumns())
    assert {"a"}.isdisjoint(text for (text,) in dataset.demonstration["texts"])
    assert dataset.notes[1:] == (
        "1 of 4 queries repeat the texts of another query",
        "texts with different labels: 1",
    )
    shown = table(tmp_path, {"text": ["b", "d", "z"], "label": ["x", "x", "y"]}, name="shown")
    stated = load(tmp_path / "reviews.csv", TableColumns(), training=shown)
    assert stated.notes == (
        "2 of 6 queries have the same texts as a training row",
        "1 of 6 queries repeat the texts of another query",
        "texts with different labels: 2",
    )


def test_what_a_table_of_choices_does_not_take_is_refused(tmp_path):
    columns = {"input": ["1 + 1?"], "choices": [["2", "3"]], "gold": [0]}
    path = table(tmp_path, columns, suffix="parquet")
    with pytest.raises(ConfigError, match=r"has choices in each row, and --labels, --instruction is for tables of"):
        load(path, TableColumns(), labels={"1": "a"}, instruction="Add.")


def test_training_data_goes_with_one_table(tmp_path):
    with pytest.raises(ConfigError, match="--training-data holds the demonstrations of one table, got 0 paths"):
        DataOptions(training=tmp_path)
    with pytest.raises(ConfigError, match="drop one"):
        DataOptions(paths=(tmp_path,), training=tmp_path, training_rows=4)


def test_a_repeated_name_of_a_column_is_refused_where_the_column_is_read(tmp_path):
    path = tmp_path / "reviews.csv"
    rows = "".join(f'"{n}",{n % 2},x\n' for n in range(8))
    path.write_text("\ufeffbody,stars,body\n" + rows)
    with pytest.raises(DatasetError, match=r"reviews\.csv has several columns 'body'\. Give each its own name\."):
        load(path, TableColumns(inputs=("body",), gold="stars"))
    path.write_text("body,stars,note,note\n" + rows.replace("x", "x,y"))
    assert all_rows(load(path, TableColumns(inputs=("body",), gold="stars"))).height == 8


def test_a_repeated_name_of_a_column_of_a_sheet_is_refused_and_a_missing_one_is_none(tmp_path):
    path = tmp_path / "reviews.xlsx"
    rows = [[f"text {n}", None, n % 2, "x"] for n in range(8)]
    path.write_bytes(sheet([["body", None, "stars", "stars"], *rows]))
    with pytest.raises(DatasetError, match=r"reviews\.xlsx has several columns 'stars'\. Give each its own name\."):
        load(path, TableColumns(inputs=("body",), gold="stars"))
    path.write_bytes(sheet([["body", None, "stars", "note"], *rows]))
    assert all_rows(load(path, TableColumns(inputs=("body",), gold="stars")))["gold"].to_list() == [0, 1] * 4
    with pytest.raises(DatasetError, match=r"has no column 'text'\. It has: body, stars, note\."):
        load(path, TableColumns(gold="stars"))


@pytest.mark.parametrize(
    ("labels", "found"),
    [
        ("false, 0, true, 2", "0 is a number, and cells before it are truth values"),
        ('1, "1", 1, "1"', "'1' is a text, and cells before it are numbers"),
        ("null, 1, true, 1", "True is a truth value, and cells before it are numbers"),
    ],
)
def test_json_lines_with_labels_of_several_kinds_are_refused(tmp_path, labels, found):
    path = tmp_path / "reviews.jsonl"
    path.write_text(
        "".join(f'{{"body": "text {n}", "stars": {label}}}\n' for n, label in enumerate(labels.split(", ")))
    )
    with pytest.raises(DatasetError, match=found):
        load(path, TableColumns(inputs=("body",), gold="stars"))


def test_numbers_of_json_lines_stay_as_they_are_written(tmp_path):
    path = tmp_path / "reviews.jsonl"
    labels = ["9007199254740993", "9007199254740992", "0.5", "1"]
    path.write_text("".join(f'{{"body": {n}, "stars": {labels[n % 4]}}}\n' for n in range(16)))
    dataset = load(path, TableColumns(inputs=("body",), gold="stars"))
    assert {*dataset.verbalizer.label_names} == {*labels}
    assert all_rows(dataset)["texts"].to_list() == [[str(n)] for n in range(16)]


def test_an_empty_instruction_is_none(tmp_path):
    assert load(table(tmp_path), instruction="").template.instruction == ""
