"""The ten datasets of StaICC, assets/staicc.toml: their data files, label spaces and the texts around their examples.

The toolkit uses the label index in a file as the index into its label space.
"""

from dataclasses import dataclass

from evaluator.files.toml_files import shipped_tables


@dataclass(frozen=True, kw_only=True)
class StaiccSource:
    """A data file of the package StaICC and how its examples are shown."""

    input_prefix: str
    label_prefix: str
    label_names: tuple[str, ...]  # in the order of the file's label indices
    instructions: tuple[str, ...]  # five wordings of one question, by GPT-4, from the toolkit's `configs.py`
    # Cho & Inoue 2025, appendix B.1, table 6. The defaults are no instruction and `input_prefix`.
    alternative_instructions: tuple[str, ...] = ()  # two; empty: the first two of `instructions`
    alternative_input_prefixes: tuple[str, str] = ("text: ", "sentence: ")
    n_demonstrations: int = 4096  # size of the demonstration split (appendix B.1, table 5)
    file: str = ""  # empty: the name of the dataset, with the suffix .dataset


SOURCES = shipped_tables("evaluator.datasets", "staicc", StaiccSource)
"""Sources by name, in the benchmark's order."""
