"""All that is measured of the storage engine, in order, and how it is shown. Driven by bench/__main__.py."""

from typing import Any

from rich.console import Console

from bench.measuring import FULL, QUICK, Row
from bench.storage import appends, reads, records, recoveries
from bench.tables import print_tables, progress
from bench.workspace import Workspace


def measure(console: Console, place: Workspace, *, quick: bool) -> dict[str, Any]:
    scale = QUICK if quick else FULL
    rows: list[Row] = []
    measurements = [
        *appends.measurements(place, scale),
        *reads.measurements(place, scale),
        *recoveries.measurements(place, scale),
        *records.measurements(scale),
    ]
    with progress(console, measurements) as each:
        for measurement in each:
            rows += measurement.run()
    print_tables(console, rows)
    return {"scale": scale.name, "rows": [row.document() for row in rows]}
