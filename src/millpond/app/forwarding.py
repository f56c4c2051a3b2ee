"""Log lines of brokers that are processes of their own, as the process that started them shows them.

    2 | 2026-01-01T12:00:00.000Z INFO    Millpond 0.1.0 listens on 127.0.0.1:9093; ...
    {"broker": 2, "time": "2026-01-01T12:00:00.000Z", "level": "info", "event": "broker_started", ...}

Invariant: every line that came in goes out, as it was or as one of these, and names its broker.
Driven by cluster_process.py.
"""

import json
from typing import Any, TextIO

from millpond.app.settings import LogFormat
from millpond.model.values import dataclass


@dataclass(frozen=True, slots=True)
class ForwardedLine:
    node_id: int
    text: str
    fields: dict[str, Any] | None
    """None where it was no JSON."""

    @classmethod
    def parse(cls, text: str, *, node_id: int) -> "ForwardedLine":
        try:
            fields = json.loads(text)
        except ValueError:
            fields = None
        return cls(node_id, text, fields if isinstance(fields, dict) else None)

    @property
    def event(self) -> str | None:
        return None if self.fields is None else str(self.fields.get("event"))


def write_line(out: TextIO, line: ForwardedLine, log_format: LogFormat) -> None:
    if log_format is LogFormat.JSON:
        fields = line.fields if line.fields is not None else {"event": "output", "message": line.text}
        out.write(json.dumps({"broker": line.node_id, **fields}) + "\n")
    else:
        out.writelines(f"{line.node_id} | {each}\n" for each in _sentences(line))
    out.flush()


def _sentences(line: ForwardedLine) -> list[str]:
    fields = line.fields
    if fields is None:
        return [line.text]
    level = str(fields.get("level", "")).upper()
    head = f"{fields.get('time', '')} {level:<7} {fields.get('message', '')}"
    return [head, *str(fields.get("traceback") or "").splitlines()]
