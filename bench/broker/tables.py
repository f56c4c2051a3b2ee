"""A broker's figures as people read them: a table per section, peers with their ratios."""

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table

from bench.broker.figures import SECTIONS, Figure, Section
from bench.tables import number

_RATIOS = {"any": "vs", "group": "vs group", "none": "vs none"}


def print_figures(
    console: Console,
    figures: Sequence[Figure],
    missing: dict[str, str],
    sections: Mapping[str, Section] = SECTIONS,
) -> None:
    for section in sections.values():
        rows = [each for each in figures if each.section == section.name]
        if rows:
            console.print(_table(section, rows))
    for name, why in missing.items():
        console.print(f"{name}: not here ({why})", markup=False)


def _table(section: Section, figures: Sequence[Figure]) -> Table:
    """Columns that would be empty are left out."""
    columns: dict[str, list[str]] = {
        "system": [each.system for each in figures],
        "synced": [each.durability.value if each.durability else "" for each in figures],
        "how": [each.workload for each in figures],
    }
    for column in section.columns:
        columns[column.heading] = [number(each.values[column.quantity]) for each in figures]
    for label, heading in _RATIOS.items():
        columns[heading] = [_times(each, section, label) for each in figures]
    columns["target"] = [_targets(each) for each in figures]
    shown = {heading: cells for heading, cells in columns.items() if any(cells)}
    caption = section.about
    if not shown.keys().isdisjoint(_RATIOS.values()):
        compared = next(each.heading for each in section.columns if each.quantity == section.compared)
        caption += f" Vs: Millpond is so many times better than that row, by {compared}, with that flush."
    table = Table(title=section.name, title_justify="left", title_style="bold", caption=caption, caption_justify="left")
    for heading in shown:
        table.add_column(heading, justify="left" if heading in ("system", "synced", "how", "target") else "right")
    for cells in zip(*shown.values(), strict=True):
        table.add_row(*cells)
    return table


def _times(figure: Figure, section: Section, label: str) -> str:
    found = figure.times.get(label)
    return number(found[section.compared]) if found else ""


def _targets(figure: Figure) -> str:
    said = []
    for quantity, target in figure.targets.items():
        bound = f"≥ {number(target.least)}" if target.least is not None else f"≤ {number(target.most or 0)}"
        met = "met" if target.is_reached_by(figure.values[quantity]) else "MISSED"
        said.append(f"{bound} {met}")
    if figure.targets and figure.is_client_bound:
        said.append("client-bound")
    return ", ".join(said)
