"""An event as a log line: a sentence for people, or an object for machines.

    2026-01-01T12:00:00.000Z INFO  Millpond 0.1.0 listens on 127.0.0.1:9092; ...
    {"time": "2026-01-01T12:00:00.000Z", "level": "info", "event": "broker_started", "port": 9092, ...}

What other libraries log passes through too: as a sentence, or as the event `message`.
Invariant: a JSON line is one line, whatever is in its fields. Driven by the standard library's logging.
"""

import json
import logging
from datetime import UTC, datetime

from millpond.telemetry.events import Event


class TextLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        event, fields = _told(record)
        sentence = event.sentence.format(**fields) if event else f"{record.name}: {record.getMessage()}"
        line = f"{_time(record)} {record.levelname:<7} {sentence}"
        traceback = _traceback(self, record)
        return f"{line}\n{traceback}" if traceback else line


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        event, fields = _told(record)
        line: dict[str, object] = {"time": _time(record), "level": record.levelname.lower()}
        if event:
            line |= {"event": event.name, "message": event.sentence.format(**fields), **fields}
        else:
            line |= {"event": "message", "logger": record.name, "message": record.getMessage()}
        if traceback := _traceback(self, record):
            line["traceback"] = traceback
        return json.dumps(line, default=str)


def _told(record: logging.LogRecord) -> tuple[Event | None, dict[str, object]]:
    return getattr(record, "event", None), getattr(record, "fields", {})


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    return formatter.formatException(record.exc_info) if record.exc_info and record.exc_info[1] else ""
