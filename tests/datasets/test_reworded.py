"""StaICC's datasets with a user's template and label names: prompts say them, and nothing else changes."""

from dataclasses import asdict, replace
from pathlib import Path

import polars as pl
import pytest

from evaluator.config import DataOptions, TableColumns
from evaluator.datasets import SOURCES
from evaluator.datasets.sources import load_datasets
from evaluator.datasets.staicc import load_staicc
from evaluator.errors import ConfigError, TemplateError
from evaluator.prompts.rows import normal_requests

LABELS = {"negative": "bad", "positive": "great"}
TEMPLATE = 'instruction = "Judge. "\nlabel_prefix = "verdict: "\nlabel_affix = "; "\n'


def load(name: str = "glue_sst2", **options: object):
    (dataset,) = load_datasets([name], DataOptions(**options))
    return dataset


def template_file(folder: Path, text: str = TEMPLATE) -> Path:
    path = folder / "template.toml"
    path.write_text(text)
    return path


def prompts(dataset) -> pl.DataFrame:
    return pl.concat(normal_requests(dataset, n_shots=2, n_queries=3))


def test_stated_texts_are_in_every_prompt_and_the_examples_are_the_same(tmp_path):
    plain, stated = load_staicc("glue_sst2"), load(template=template_file(tmp_path), labels=LABELS)
    ours, own = prompts(stated), prompts(plain)
    assert ours.select("query_id", "demonstration_ids", "gold").equals(
        own.select("query_id", "demonstration_ids", "gold")
    )
    template = plain.template
    for prompt, row in zip(ours["prompt"], ours.iter_rows(named=True), strict=True):

        def text(split: pl.DataFrame, number: int) -> str:
            return f"{template.input_prefixes[0]}{split['texts'][number][0]}{template.input_affixes[0]}verdict: "

        shown = plain.demonstration
        demonstrations = [text(shown, n) + ("bad", "great")[shown["gold"][n]] + "; " for n in row["demonstration_ids"]]
        assert prompt == "Judge. " + "".join(demonstrations) + template.query_prefix + text(plain.test, row["query_id"])
    assert ours["label_names"][0].to_list() == ["bad", "great"]


@pytest.mark.parametrize("name", list(SOURCES))
def test_a_template_that_repeats_the_datasets_own_gives_the_same_prompts(tmp_path, name):
    plain = load_staicc(name)
    lines = [
        f"{key} = {[*value] if isinstance(value, tuple) else value!r}" for key, value in asdict(plain.template).items()
    ]
    texts = "\n".join(lines).replace("'", '"')
    stated = load(name, template=template_file(tmp_path, texts.replace("\n\n", "\\n")))
    assert stated.template == plain.template
    assert prompts(stated)["prompt"].equals(prompts(plain)["prompt"])
    assert stated.alternative_templates == plain.alternative_templates
    assert stated.fingerprint != load(name, labels={plain.verbalizer.label_names[0]: "other"}).fingerprint


def test_nine_templates_follow_from_a_stated_one_and_an_instruction_ends_as_demonstrations_do(tmp_path):
    plain, stated = load_staicc("trec"), load("trec", template=template_file(tmp_path))
    assert stated.alternative_templates[0] == stated.template != plain.template
    assert len({*stated.alternative_templates}) == 9
    assert load("trec", instruction="Judge.").template == replace(
        plain.template, instruction="Judge." + plain.template.label_affix
    )
    assert (
        load("trec", labels={plain.verbalizer.label_names[0]: "x"}).alternative_templates == plain.alternative_templates
    )


def test_texts_that_do_not_fit_are_refused(tmp_path):
    with pytest.raises(TemplateError, match=r"glue_sst2 has no label 'neutral'\. It has: negative, positive"):
        load(labels={"neutral": "so-so"})
    with pytest.raises(TemplateError, match="Label names must differ"):
        load(labels={"negative": "positive"})
    two = 'input_prefixes = ["a", "b"]\ninput_affixes = ["", ""]\n'
    with pytest.raises(TemplateError, match="2 input prefixes"):
        load(template=template_file(tmp_path, two))
    with pytest.raises(ConfigError, match=r"--gold-column.* is for a table of your own"):
        load(labels=LABELS, columns=TableColumns(gold="x"))


def test_with_a_table_of_the_users_own_the_options_are_about_that_table_alone(tmp_path):
    table = tmp_path / "own.csv"
    table.write_text("text,label\n" + "".join(f"t{n},{n % 2}\n" for n in range(40)))
    plain = load_staicc("glue_sst2")
    named, own = load_datasets(["glue_sst2"], DataOptions(paths=(table,), labels={"0": "no", "1": "yes"}))
    assert named.fingerprint == plain.fingerprint
    assert own.verbalizer.label_names == ("no", "yes")


def test_a_text_that_is_stated_as_empty_replaces_that_of_the_dataset(tmp_path):
    plain, stated = load_staicc("trec"), load("trec", template=template_file(tmp_path, 'label_prefix = ""'))
    assert plain.template.label_prefix != ""
    assert stated.template == replace(plain.template, label_prefix="")
