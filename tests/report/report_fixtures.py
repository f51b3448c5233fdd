"""A report of hand-made frames, written once and opened in a browser."""

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from selenium import webdriver

from evaluator.compare.schema import DIFFERENCES
from evaluator.run.pipeline import write_run_page
from evaluator.schemas import ABSENT_LABELS, DESIGN_STUDY, GROUP_METRICS, TOTAL_ERROR, VARIANCE_COMPONENTS
from tests.report.made_record import made_record
from tests.report.made_run import MadeRun
from tests.report.reading import open_fresh
from tests.report.report_frames import confusion_frame, label_spaces_frame, metrics_frame, reliability_frame


@pytest.fixture(scope="session")
def report_data() -> MadeRun:
    return MadeRun(
        record=made_record(),
        tables={
            "metrics": metrics_frame(),
            "label_spaces": label_spaces_frame(),
            "reliability": reliability_frame(),
            "confusion": confusion_frame(),
            "group_metrics": GROUP_METRICS.to_frame(),
            "method_differences": DIFFERENCES.to_frame(),
            "missing_classes": pl.DataFrame(),
            "absent_labels": ABSENT_LABELS.to_frame(),
            "total_error": TOTAL_ERROR.to_frame(),
            "variance_components": VARIANCE_COMPONENTS.to_frame(),
            "design_study": DESIGN_STUDY.to_frame(),
        },
    )


@pytest.fixture
def opened(browser: webdriver.Chrome, tmp_path: Path) -> Callable[[MadeRun], webdriver.Chrome]:
    """Write a report and open it."""

    def open_report(data: MadeRun) -> webdriver.Chrome:
        return open_fresh(browser, write_run_page(data, tmp_path / "report.html"))

    return open_report


@pytest.fixture(scope="session")
def report_path(report_data: MadeRun, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run_page(report_data, tmp_path_factory.mktemp("report") / "report.html")


@pytest.fixture
def page(browser: webdriver.Chrome, report_path: Path) -> webdriver.Chrome:
    """The browser with the report of `report_data` just opened."""
    return open_fresh(browser, report_path)
