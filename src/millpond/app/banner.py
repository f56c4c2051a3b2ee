"""What somebody who starts a broker by hand sees first: where it is, where its data is, how to reach it and to stop it.

Driven by process.py, on a terminal only.
"""

from typing import TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from millpond import __version__
from millpond.app.recovery_summary import RecoverySummary


def show_banner(
    out: TextIO, *, address: str, http: str | None, grpc: str | None, data_dir: str, summary: RecoverySummary
) -> None:
    rows = Table.grid(padding=(0, 2))
    rows.add_column(style="dim")
    rows.add_column(overflow="fold")
    rows.add_row("Kafka", Text(address, style="bold green"))
    if http is not None:
        rows.add_row("Metrics", Text(f"http://{http}/metrics"))
    if grpc is not None:
        rows.add_row("gRPC", Text(grpc))
    rows.add_row("Data", Text(data_dir))
    rows.add_row("Partitions", Text(f"{summary.logs}; {summary}"))
    rows.add_row("Connect", Text(f"bootstrap.servers={address}", style="cyan"))
    rows.add_row("Stop", Text("Ctrl-C"))
    console = Console(file=out, highlight=False)
    console.print()
    console.print(Text.assemble(("Millpond", "bold"), f" {__version__}"))
    console.print()
    console.print(rows)
    console.print()
