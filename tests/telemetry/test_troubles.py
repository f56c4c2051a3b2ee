"""Troubles are told as what they are, and not over and over."""

import logging

import pytest

from millpond.model.errors import DiskFull
from millpond.telemetry.troubles import QUIET_MS, REMEMBERED_MAX, Troubles
from millpond.testing.clock import ManualClock


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def test_a_full_disk_is_told_as_that_and_a_bug_as_one(caplog: pytest.LogCaptureFixture) -> None:
    troubles = Troubles(ManualClock())
    with caplog.at_level(logging.INFO, "millpond"):
        troubles.note(DiskFull("no space left for orders-0"))
        troubles.note(KeyError("orders"))
    assert told(caplog) == ["disk_trouble", "unexpected_error"]


def test_the_same_is_told_again_only_after_a_while(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    troubles = Troubles(clock)
    with caplog.at_level(logging.INFO, "millpond"):
        for _ in range(3):
            troubles.note(DiskFull("no space left for orders-0"))
        troubles.note(DiskFull("no space left for orders-1"))
        assert len(told(caplog)) == 2
        clock.advance(QUIET_MS)
        troubles.note(DiskFull("no space left for orders-0"))
    assert len(told(caplog)) == 3


def test_only_so_many_are_remembered(caplog: pytest.LogCaptureFixture) -> None:
    troubles = Troubles(ManualClock())
    with caplog.at_level(logging.INFO, "millpond"):
        for number in [*range(REMEMBERED_MAX + 1), 0]:
            troubles.note(ValueError(number))
    assert len(told(caplog)) == REMEMBERED_MAX + 2
