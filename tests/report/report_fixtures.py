"""A report of hand-made frames, written once and opened in a browser."""

from collections.abc import Callable
from pathlib import Path

import pytest
from selenium import webdriver

from evaluator.report.page import ReportData, write_report
from tests.report.reading import open_fresh
from tests.report.report_frames import confusion_frame, metrics_frame, predictions_frame, reliability_frame, run_record


@pytest.fixture(scope="session")
def report_data() -> ReportData:
    return ReportData(
        run=run_record(),
        metrics=metrics_frame(),
        predictions=predictions_frame(),
        reliability=reliability_frame(),
        confusion=confusion_frame(),
    )


@pytest.fixture
def opened(browser: webdriver.Chrome, tmp_path: Path) -> Callable[[ReportData], webdriver.Chrome]:
    """Write a report and open it."""

    def open_report(data: ReportData) -> webdriver.Chrome:
        return open_fresh(browser, write_report(data, tmp_path / "report.html"))

    return open_report


@pytest.fixture(scope="session")
def report_path(report_data: ReportData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(report_data, tmp_path_factory.mktemp("report") / "report.html")


@pytest.fixture
def page(browser: webdriver.Chrome, report_path: Path) -> webdriver.Chrome:
    """The browser with the report of `report_data` just opened."""
    return open_fresh(browser, report_path)
