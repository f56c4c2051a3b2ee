"""Events as lines: for people, and for machines."""

import io
import json
import logging
import re
from collections.abc import Iterator

import pytest

from millpond.telemetry import events
from millpond.telemetry.events import BROKER_STOPPED, LOG_RECOVERED, LOGGER, UNEXPECTED_ERROR, Event, tell
from millpond.telemetry.log_lines import JsonLines, TextLines

EVENTS = [each for each in vars(events).values() if isinstance(each, Event)]


class Lines(logging.StreamHandler[io.StringIO]):
    """What the logger `millpond` writes while a test runs."""

    def __init__(self) -> None:
        super().__init__(io.StringIO())

    @property
    def text(self) -> str:
        return self.stream.getvalue()


@pytest.fixture
def lines() -> Iterator[Lines]:
    lines, level = Lines(), LOGGER.level
    LOGGER.addHandler(lines)
    LOGGER.setLevel(logging.INFO)
    yield lines
    LOGGER.removeHandler(lines)
    LOGGER.setLevel(level)


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.name)
def test_a_sentence_names_only_fields_of_its_event(event: Event) -> None:
    assert set(re.findall(r"{(\w+)}", event.sentence)) <= set(event.fields)


def test_names_of_events_are_unique() -> None:
    assert len({event.name for event in EVENTS}) == len(EVENTS) > 5


def test_a_line_for_people(lines: Lines) -> None:
    lines.setFormatter(TextLines())
    tell(BROKER_STOPPED, took_ms=12)
    time, _, rest = lines.text.partition(" ")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", time)
    assert rest == "INFO    stopped, every log closed in order, after 12 ms\n"


def test_a_line_for_machines(lines: Lines) -> None:
    lines.setFormatter(JsonLines())
    tell(LOG_RECOVERED, partition="a\nb-0", bytes_scanned=9, bytes_cut=1, cut_reason=None, next_offset=3)
    assert lines.text.count("\n") == 1
    line = json.loads(lines.text)
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "warning",
        "event": "log_recovered",
        "message": "a\nb-0 was not closed in order: 9 bytes checked, 1 of an unfinished write cut off",
        "partition": "a\nb-0",
        "bytes_scanned": 9,
        "bytes_cut": 1,
        "cut_reason": None,
        "next_offset": 3,
    }


def raised() -> Exception:
    try:
        raise KeyError("who")
    except KeyError as error:
        return error


def test_a_bug_is_told_with_its_traceback(lines: Lines) -> None:
    lines.setFormatter(JsonLines())
    tell(UNEXPECTED_ERROR, error=raised())
    line = json.loads(lines.text)
    assert line["error"] == "KeyError: 'who'"
    assert "in raised" in line["traceback"]
    lines.setFormatter(TextLines())
    tell(UNEXPECTED_ERROR, error=raised())
    assert 'raise KeyError("who")' in lines.text


def test_an_event_is_told_with_exactly_its_fields() -> None:
    with pytest.raises(AssertionError, match="broker_stopped has the fields"):
        tell(BROKER_STOPPED)
    with pytest.raises(AssertionError, match="broker_stopped has the fields"):
        tell(BROKER_STOPPED, took_ms=1, more=2)


def test_what_others_log_passes_through(lines: Lines) -> None:
    lines.setFormatter(JsonLines())
    LOGGER.getChild("elsewhere").warning("%s was slow", "it")
    line = json.loads(lines.text)
    assert (line["event"], line["logger"], line["message"]) == ("message", "millpond.elsewhere", "it was slow")
    lines.setFormatter(TextLines())
    LOGGER.getChild("elsewhere").warning("%s was slow", "it")
    assert lines.text.endswith("WARNING millpond.elsewhere: it was slow\n")
