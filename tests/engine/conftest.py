"""Fixtures that several tests of engines share."""

import pytest

from evaluator.engine import server_client


@pytest.fixture
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let work that failed at a server wait a thousandth of the usual time."""
    monkeypatch.setattr(server_client, "FIRST_WAIT_S", server_client.FIRST_WAIT_S / 1000)
    monkeypatch.setattr(server_client, "MAX_WAIT_S", server_client.MAX_WAIT_S / 1000)
