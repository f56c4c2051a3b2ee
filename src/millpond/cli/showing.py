"""What a command found out, for people or for programs.

Invariant: there is one document; tables are drawn from its rows, so that table, JSON and YAML say the same. Colours
and borders as wide as the screen only on a terminal; in a pipe lines are as long as they are.
Driven by every command that shows something.
"""

import re
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from millpond.cli.documents import as_json, as_yaml
from millpond.cli.options import Output
from millpond.model.values import dataclass

PIPE_COLUMNS: Final = 10_000
STYLES: Final = {"ok": "green", "warn": "yellow", "fail": "bold red", "live": "green", "fenced": "bold red"}

_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""What a message may not say to the terminal of whoever looks at it."""

Row = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Section:
    """A table: rows of the document, and which of their fields are its columns."""

    rows: Sequence[Row]
    columns: Sequence[str]
    title: str | None = None


def show(document: Row, output: Output, *drawn: Section | str) -> None:
    """The document; or, for people, what is drawn of it, sentences and tables."""
    match output:
        case Output.JSON:
            write(as_json(document))
        case Output.YAML:
            write(as_yaml(document))
        case Output.TABLE:
            for each in drawn:
                write(each if isinstance(each, str) else _table(each))


class OutputClosed(Exception):
    """Whoever read stdout has closed it. Not an OSError, which the framework would make a failure of."""


def write(text: str) -> None:
    try:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
    except BrokenPipeError:
        raise OutputClosed from None


def note(text: str) -> None:
    """Beside the output, for whoever watches."""
    sys.stderr.write(f"millpond: {text}\n")
    sys.stderr.flush()


def cell(value: object) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case list() | tuple():
            return ", ".join(map(cell, value)) or "none"
        case _:
            return _CONTROLS.sub(lambda found: repr(found[0])[1:-1], str(value))


def _table(section: Section) -> str:
    # What draws tables is slow to load, and programs have no use for it.
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    is_terminal = sys.stdout.isatty()
    console = Console(highlight=False, width=None if is_terminal else PIPE_COLUMNS)
    table = Table(title=section.title, title_justify="left", title_style="bold")
    for column in section.columns:
        values = [row[column] for row in section.rows]
        numbers = all(isinstance(each, int | float | None) and not isinstance(each, bool) for each in values)
        justify = "right" if numbers and values else "left"
        table.add_column(column.replace("_", " "), justify=justify, overflow="fold")  # type: ignore[arg-type]
    for row in section.rows:
        texts = [cell(row[column]) for column in section.columns]
        table.add_row(*(Text(text, style=STYLES.get(text, "")) for text in texts))
    with console.capture() as captured:
        console.print(table)
    return captured.get().rstrip("\n")
