"""`millpond cluster`: what a cluster says of itself.

millpond cluster status --bootstrap 127.0.0.1:9092
"""

import time
from enum import Enum
from typing import Annotated

import typer
from typer import Option

from millpond.app.refusals import CannotStart
from millpond.app.settings import parse_address
from millpond.cli.asking import CannotReach
from millpond.cli.cluster_state import ClusterState, look
from millpond.cli.documents import as_json, as_yaml

cluster = typer.Typer(name="cluster", help="Look at a cluster.", no_args_is_help=True)


class Output(Enum):
    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


@cluster.callback()
def _commands() -> None:
    """Look at a cluster."""


@cluster.command()
def status(
    bootstrap: Annotated[str, Option(help="Any broker of the cluster.", metavar="HOST:PORT")] = "127.0.0.1:9092",
    output: Annotated[Output, Option(help="For people, or for programs.")] = Output.TABLE,
    timeout: Annotated[float, Option(help="How long to wait for each answer.", metavar="SECONDS", min=0.1)] = 10.0,
) -> None:
    """The controller and its quorum, the brokers, and the partitions that are not as they should be."""
    address = parse_address("--bootstrap", bootstrap)
    try:
        state = look(address.host, address.port, seconds_max=timeout, now_ms=time.time_ns() // 1_000_000)
    except CannotReach as error:
        raise CannotStart(str(error)) from None
    match output:
        case Output.JSON:
            typer.echo(as_json(state.document()))
        case Output.YAML:
            typer.echo(as_yaml(state.document()))
        case Output.TABLE:
            _show(state)


def _show(state: ClusterState) -> None:
    # What draws tables is slow to load, and programs have no use for it.
    from millpond.cli.cluster_tables import show  # noqa: PLC0415

    show(state)
