"""Commands called in the test's own process, and what they print read back.

Invariant: what a table shows is compared as the text that a program's document comes to, cell by cell.
"""

import json
import os
import sys
from typing import Any

import pytest

from millpond.cli.__main__ import main
from millpond.cli.showing import cell

Called = tuple[int, str, str]


class Command:
    """`millpond`, towards one broker."""

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, bootstrap: str) -> None:
        self._capsys = capsys
        self._monkeypatch = monkeypatch
        monkeypatch.setenv("MILLPOND_BOOTSTRAP", bootstrap)
        monkeypatch.setenv("COLUMNS", "100")
        self.bootstrap = bootstrap

    def __call__(self, *arguments: str, stdin: bytes | None = None) -> Called:
        """The exit code, stdout and stderr."""
        with pytest.raises(SystemExit) as ended:
            self._run(arguments, stdin)
        assert isinstance(ended.value.code, int)
        return ended.value.code, *self._capsys.readouterr()

    def _run(self, arguments: tuple[str, ...], stdin: bytes | None) -> None:
        """Fed through a pipe, as a shell does; as much as a pipe holds."""
        if stdin is None:
            main(arguments)
        reading, writing = os.pipe()
        assert os.write(writing, stdin or b"") == len(stdin or b"")
        os.close(writing)
        with os.fdopen(reading) as pipe, self._monkeypatch.context() as patch:
            patch.setattr(sys, "stdin", pipe)
            main(arguments)

    def ok(self, *arguments: str, stdin: bytes | None = None) -> str:
        code, out, err = self(*arguments, stdin=stdin)
        assert (code, err) == (0, ""), err
        return out

    def document(self, *arguments: str) -> Any:  # noqa: ANN401
        """As JSON; YAML says the same."""
        found = json.loads(self.ok(*arguments, "--output", "json"))
        assert _timeless(read_yaml(self.ok(*arguments, "--output", "yaml"))) == _timeless(found)
        return found


def _timeless(document: Any) -> Any:  # noqa: ANN401
    """What is so old grows older from one call to the next."""
    if isinstance(document, dict):
        return {name: bool(item) if name == "lag_seconds" else _timeless(item) for name, item in document.items()}
    return list(map(_timeless, document)) if isinstance(document, list) else document


def read_table(text: str) -> list[dict[str, str]]:
    """The rows of all tables in a text, by their columns' names."""
    rows: list[dict[str, str]] = []
    columns: list[str] = []
    for line in text.splitlines():
        if line.startswith("┃"):
            columns = [each.strip() for each in line.strip("┃").split("┃")]
        elif line.startswith("│"):
            rows.append(dict(zip(columns, (each.strip() for each in line.strip("│").split("│")), strict=True)))
    return rows


def as_shown(rows: list[dict[str, Any]], *columns: str) -> list[dict[str, str]]:
    return [{column.replace("_", " "): cell(row[column]) for column in columns} for row in rows]


def read_yaml(text: str) -> Any:  # noqa: ANN401
    """YAML of the plain kind, as Millpond writes it: nested by two spaces, every scalar JSON."""
    lines = [((len(line) - len(line.lstrip(" "))) // 2, line.strip()) for line in text.splitlines()]
    found, rest = _block(lines, 0)
    assert not rest
    return found


Lines = list[tuple[int, str]]


def _block(lines: Lines, depth: int) -> tuple[Any, Lines]:
    if lines[0][1].startswith("- "):
        items: list[Any] = []
        while lines and lines[0][0] == depth and lines[0][1].startswith("- "):
            first, *rest = lines
            item, lines = _block([(depth + 1, first[1][2:]), *rest], depth + 1)
            items.append(item)
        return items, lines
    mapping: dict[str, Any] = {}
    while lines and lines[0][0] == depth and not lines[0][1].startswith("- "):
        name, _, value = lines[0][1].partition(":")
        lines = lines[1:]
        if value.strip():
            mapping[name] = json.loads(value)
        else:
            mapping[name], lines = _block(lines, depth + 1)
    return mapping, lines
