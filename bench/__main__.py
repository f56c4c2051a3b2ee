"""`python -m bench [--quick] [--dir DIRECTORY]`: measures, prints, and writes bench/results/storage.json."""

import argparse
import json
from pathlib import Path

from bench import appends, reads, records, recoveries
from bench.measuring import FULL, QUICK, Row
from bench.tables import make_console, print_head, print_tables, progress
from bench.workspace import machine_facts, workspace

RESULTS = Path(__file__).parent / "results" / "storage.json"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="The storage engine beside plain system calls."
    )
    parser.add_argument("--quick", action="store_true", help="a smoke test of a few seconds; its figures mean nothing")
    parser.add_argument("--dir", help="a directory on the disk to measure; the usual temporary one otherwise")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where to write the figures as JSON")
    chosen = parser.parse_args()
    scale = QUICK if chosen.quick else FULL
    console = make_console()
    rows: list[Row] = []
    with workspace(chosen.dir) as place:
        machine = machine_facts(place)
        print_head(console, machine)
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
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    document = {"scale": scale.name, "machine": machine, "rows": [row.document() for row in rows]}
    chosen.out.write_text(json.dumps(document, indent=1) + "\n")
    console.print(f"written to {chosen.out}", markup=False, soft_wrap=True)


if __name__ == "__main__":
    main()
