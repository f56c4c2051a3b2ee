"""The rows as people read them: a table per section, a progress bar on a terminal, plain lines elsewhere."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from bench.measuring import Measurement, R, Row, Target

_WIDTH_ELSEWHERE = 120
_HEADINGS = ("what", "measured", "raw", "of raw", "raw is", "target")
"""Those that would be empty in a table are left out."""
_NUMBERS = ("measured", "raw", "of raw")


def make_console() -> Console:
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_WIDTH_ELSEWHERE)


@contextmanager
def progress(console: Console, measurements: Sequence[Measurement[R]]) -> Iterator[Iterator[Measurement[R]]]:
    """Hands the measurements out one by one and shows how far they are."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("starting", total=len(measurements))

        def each() -> Iterator[Measurement[R]]:
            for number, measurement in enumerate(measurements, start=1):
                bar.update(task, description=measurement.title)
                if not console.is_terminal:
                    console.print(f"[{number}/{len(measurements)}] {measurement.title}", markup=False)
                yield measurement
                bar.advance(task)

        yield each()


def print_head(console: Console, machine: dict[str, Any]) -> None:
    console.print(
        f"{machine['cpus']} CPUs ({machine['cpu']}), Python {machine['python']}, {machine['file_system']}, "
        f"fdatasync p50 {machine['fdatasync_p50_us']:.0f} µs, load {machine['load_before']}"
    )
    if machine["load_before"] > machine["cpus"] / 2:
        console.print("Others use this machine too: waiting times grow by theirs, and ratios scatter.")
    if not machine["is_disk"]:
        console.print("This directory is in memory: a sync costs nothing here, and the figures say little.")


def print_tables(console: Console, rows: Sequence[Row]) -> None:
    for section in dict.fromkeys(row.section for row in rows):
        table = Table(title=section, title_justify="left", title_style="bold")
        columns = zip(*(_cells(row) for row in rows if row.section == section), strict=True)
        shown = {heading: cells for heading, cells in zip(_HEADINGS, columns, strict=True) if any(cells)}
        for heading in shown:
            table.add_column(heading, justify="right" if heading in _NUMBERS else "left")
        for cells in zip(*shown.values(), strict=True):
            table.add_row(*cells)
        console.print(table)


def _cells(row: Row) -> tuple[str, str, str, str, str, str]:
    return (
        row.name,
        f"{number(row.value)} {row.unit}",
        "" if row.raw is None else f"{number(row.raw)}",
        "" if row.ratio is None else f"{row.ratio:.2f}",
        row.compared_with,
        "" if row.target is None else f"{_wanted(row.target, row)} {'met' if row.target.is_met(row) else 'MISSED'}",
    )


def _wanted(target: Target, row: Row) -> str:
    unit = "of raw" if target.quantity == "ratio" else row.unit
    return f"≥ {number(target.least)} {unit}" if target.least is not None else f"≤ {number(target.most or 0)} {unit}"


def number(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"
