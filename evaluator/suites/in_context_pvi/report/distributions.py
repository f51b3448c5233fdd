"""Sections about right and wrong predictions: histograms by PVI, and accuracy by decile."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from markupsafe import Markup

from evaluator.report.section import Section
from evaluator.suites.in_context_pvi.report.figures import decile_figure, density_figure, threshold_text
from evaluator.suites.in_context_pvi.report.sources import BY_SOURCE, has_several, run_name
from evaluator.suites.in_context_pvi.report.views import DRAWN, UNIT, Tables, template
from evaluator.suites.in_context_pvi.schema import PVI_ORDERS


class DensityPanel(NamedTuple):
    """The histogram of one run."""

    name: str  # of the run
    about: str  # its threshold in words
    svg: Markup


class DensitiesView(NamedTuple):
    """The histograms of one dataset."""

    name: str  # of the dataset
    densities: list[DensityPanel]


class DecilePanel(NamedTuple):
    """The accuracies by decile of one dataset."""

    dataset: str
    svg: Markup


class DensitiesContext(NamedTuple):
    """Histograms of right and wrong predictions."""

    drawn: str  # definition
    views: Sequence[DensitiesView]


class DecilesContext(NamedTuple):
    """Accuracy by PVI deciles."""

    drawn: str
    panels: Sequence[DecilePanel]
    suite_source: str  # PviSource of the suite's demonstrations; "" if nothing was chosen by PVI
    sources: Sequence[str]  # PviOrder of chosen demonstrations, each drawn in another colour


def distribution_sections(drawn: Tables, datasets: Sequence[str], suite_source: str) -> Iterator[Section]:
    """Yield the histograms of right and wrong predictions, and the accuracies by decile."""
    yield Section(
        anchor="densities",
        title="Right and wrong predictions by PVI",
        navigation="Right and wrong",
        template=template("densities"),
        context=DensitiesContext(DRAWN, [DensitiesView(name, list(_density_panels(name, drawn))) for name in datasets]),
    )
    sources = {*drawn["pvi_summary"]["demonstrations"]}
    chosen_sources = [name for name in PVI_ORDERS if name in sources]
    yield Section(
        anchor="deciles",
        title="Accuracy by PVI deciles",
        navigation="Deciles",
        template=template("deciles"),
        context=DecilesContext(DRAWN, list(_decile_panels(drawn, datasets)), suite_source, chosen_sources),
    )


def _decile_panels(drawn: Tables, datasets: Sequence[str]) -> Iterator[DecilePanel]:
    several = has_several(drawn["pvi"])
    for name in datasets:
        deciles = drawn["pvi_deciles"].filter(dataset=name)
        if not deciles.is_empty():
            yield DecilePanel(name, Markup(decile_figure(deciles, several=several)))


def _density_panels(dataset: str, drawn: Tables) -> Iterator[DensityPanel]:
    densities, summary = (drawn[name].filter(dataset=dataset) for name in ("pvi_densities", "pvi_summary"))
    several = has_several(drawn["pvi"])
    in_order = densities.sort(BY_SOURCE, maintain_order=True)
    runs = in_order.partition_by("demonstrations", "n_shots", "demonstration_set", as_dict=True, maintain_order=True)
    for (source, n_shots, number), rows in runs.items():
        threshold = summary.filter(demonstrations=source, n_shots=n_shots, demonstration_set=number)["threshold"].item()
        svg = Markup(density_figure(rows, threshold, UNIT))
        name = run_name(n_shots, str(source), number, several=several)
        yield DensityPanel(name, threshold_text(threshold, UNIT), svg)
