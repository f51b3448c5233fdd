"""Build the report sections of in-context PVI from its tables. Nothing is computed here."""

from collections.abc import Iterator
from typing import NamedTuple

from evaluator.report import tables
from evaluator.report.section import MeasuredRun, PackageFile, Section
from evaluator.report.total_error import total_error_sections
from evaluator.suites.in_context_pvi.report.demonstrations import DemonstrationsView, demonstrations_view
from evaluator.suites.in_context_pvi.report.distributions import distribution_sections
from evaluator.suites.in_context_pvi.report.lists import listed_section
from evaluator.suites.in_context_pvi.report.stability import stability_sections
from evaluator.suites.in_context_pvi.report.views import DRAWN, ViewsContext, definition_view, template
from evaluator.suites.in_context_pvi.schema import PVI_DEFINITIONS, PviDefinition

MEANINGS: dict[PviDefinition, str] = {
    "paper": "log-likelihoods over the whole vocabulary (Lu et al. 2023, equation 1).",
    "label_space": "the same normalised over the labels, so that the probability of other words is left out.",
    "released": "as in the released notebook: at temperature 0.8, over the 20 most probable tokens, where a label that "
    "is none of these counts as the least probable of them; predictions are drawn from these tokens. The notebook has "
    "nats; here they are bits, as under the other definitions, and the columns of the tables that end in _nats have "
    "its numbers.",
}
"""Definition -> one line for the reader, in the order of the page's choice of definitions."""

TABLES = (
    "pvi",
    "pvi_summary",
    "pvi_deciles",
    "pvi_densities",
    "pvi_pairs",
    "pvi_consistency",
    "pvi_one_way",
    "pvi_repeated_measures",
    "pvi_annotators",
    "pvi_hardest",
    "pvi_mislabelled",
    "pvi_demonstrations",
    "pvi_chosen",
)
"""Names of the tables that the sections show."""


class DemonstrationsContext(NamedTuple):
    """Demonstrations chosen by PVI, compared with those of the suite."""

    drawn: str  # definition
    view: DemonstrationsView


def pvi_sections(run: MeasuredRun) -> Iterator[Section]:
    """Yield the sections of a run of the suite.

    Args:
        run: has TABLES and label_spaces.
    """
    all_tables = {name: run.table(name) for name in TABLES}
    drawn = {name: table.filter(definition=DRAWN) for name, table in all_tables.items()}
    summary = all_tables["pvi_summary"]
    datasets = tables.dataset_order(summary, run.record.prompts.datasets)
    label_names = dict(run.table("label_spaces").select("dataset", "label_names").iter_rows())
    present = {*summary["definition"]}
    views = [definition_view(all_tables, name, datasets) for name in PVI_DEFINITIONS if name in present]
    chosen = demonstrations_view(drawn["pvi_demonstrations"], drawn["pvi_chosen"], label_names, datasets)
    suite_source = chosen.suite_source if chosen else ""
    yield Section(
        anchor="v-information",
        title="V-information and accuracy",
        kind="pvi",
        navigation="V-information",
        template=template("v_information"),
        context=ViewsContext(views),
        definitions={name: meaning for name, meaning in MEANINGS.items() if name in present},
        datasets=tuple(datasets),
        style=PackageFile("evaluator.suites.in_context_pvi", "assets/pvi.css"),
    )
    if chosen:
        yield Section(
            anchor="chosen",
            title="Demonstrations chosen by PVI",
            subtitle="Lu et al. 2023, section 5.6",
            kind="pvi",
            navigation="Demonstrations",
            template=template("demonstrations"),
            context=DemonstrationsContext(DRAWN, chosen),
        )
    yield from total_error_sections(run, datasets)
    yield from distribution_sections(drawn, datasets, suite_source)
    yield from stability_sections(drawn, datasets, views)
    yield listed_section(drawn, datasets, label_names, suite_source)
