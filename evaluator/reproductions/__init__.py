"""Recompute published tables from released results, with one package for each paper, imported only when it is used."""

from collections.abc import Callable

from evaluator.reproductions.base import Reproduction


def _yauney_mimno_2024() -> Reproduction:
    from evaluator.reproductions.yauney_mimno_2024 import data, page, recompute

    return Reproduction(
        title="Yauney & Mimno 2024, Stronger Random Baselines for In-Context Learning: the best of 200 prompts "
        "compared with random baselines, under the authors' rules and under sound ones",
        source="gyauney/stronger-random-baselines on GitHub",
        files=data.FILES,
        read=data.read_results,
        recompute=recompute.recompute,
        write_page=page.write_published_page,
        summary_lines=recompute.summary_lines,
    )


def _lu_2023() -> Reproduction:
    from evaluator.reproductions.lu_2023 import data, page, recompute

    return Reproduction(
        title="Lu et al. 2023, Measuring Pointwise V-Usable Information In-Context-ly: tables 1, 2, 9, 14 and 15, each "
        "cell next to the paper's",
        source="UKPLab/in-context-pvi on GitHub",
        files=data.FILES,
        read=data.read_results,
        recompute=recompute.recompute,
        write_page=page.write_published_page,
        summary_lines=recompute.summary_lines,
    )


def _cho_inoue_2025() -> Reproduction:
    from evaluator.reproductions.cho_inoue_2025 import page, recompute
    from evaluator.suites.staicc.published import printed_tables

    return Reproduction(
        title="Cho & Inoue 2025, StaICC: figures 4, 5, 7 and 8 recomputed from the printed tables, sentences tested, "
        "tables compared with each other",
        source="arXiv 2501.15708, tables 2, 3, 7 and 8",
        read=lambda _folder: printed_tables(),
        recompute=recompute.recompute,
        write_page=page.write_published_page,
        summary_lines=recompute.summary_lines,
    )


REPRODUCTIONS: dict[str, Callable[[], Reproduction]] = {
    "yauney-mimno-2024": _yauney_mimno_2024,
    "lu-2023": _lu_2023,
    "cho-inoue-2025": _cho_inoue_2025,
}
