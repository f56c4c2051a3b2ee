"""A broker's figures as people read them: a table per section, peers with their ratios."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from bench.broker.figures import SECTIONS, Figure, Section, ratios
from bench.tables import number


def print_figures(console: Console, figures: Sequence[Figure], missing: dict[str, str]) -> None:
    for section in SECTIONS:
        rows = [each for each in figures if each.section == section.name]
        if rows:
            console.print(_table(section, rows))
    for name, why in missing.items():
        console.print(f"{name}: not here ({why})", markup=False)


def _table(section: Section, figures: Sequence[Figure]) -> Table:
    table = Table(title=section.name, title_justify="left", title_style="bold", caption=section.about)
    table.caption_justify = "left"
    table.add_column("system")
    if any(each.durability for each in figures):
        table.add_column("synced first")
    if any(each.workload for each in figures):
        table.add_column("how")
    for column in section.columns:
        table.add_column(column.heading, justify="right")
    compared = next(each.heading for each in section.columns if each.quantity == section.compared)
    if any(ratios(each, figures, section) for each in figures):
        table.add_column(f"Millpond is so many times better ({compared})")
    table.add_column("target")
    for figure in figures:
        cells = [figure.system]
        if any(each.durability for each in figures):
            cells.append(figure.durability.value if figure.durability else "")
        if any(each.workload for each in figures):
            cells.append(figure.workload)
        cells += [number(figure.values[column.quantity]) for column in section.columns]
        if any(ratios(each, figures, section) for each in figures):
            cells.append(_times(figure, figures, section))
        table.add_row(*cells, _targets(figure))
    return table


def _times(figure: Figure, figures: Sequence[Figure], section: Section) -> str:
    found = ratios(figure, figures, section)
    if "any" in found:
        return f"{found['any'][section.compared]:.2f}"
    return ", ".join(f"{label} {values[section.compared]:.2f}" for label, values in found.items())


def _targets(figure: Figure) -> str:
    said = []
    for quantity, target in figure.targets.items():
        bound = f"≥ {number(target.least)}" if target.least is not None else f"≤ {number(target.most or 0)}"
        met = "met" if target.is_reached_by(figure.values[quantity]) else "MISSED"
        said.append(f"{bound} {met}")
    if "client is the limit" in figure.note:
        said.append("client-bound")
    return ", ".join(said)
