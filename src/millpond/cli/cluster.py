"""`millpond cluster`: what a cluster says of itself, and which of its brokers vote.

millpond cluster status --bootstrap 127.0.0.1:9092
millpond cluster demote 3
millpond cluster promote 3
"""

import time
from enum import Enum
from typing import Annotated, TypeVar

import typer
from typer import Argument, Option

from millpond.app.refusals import CannotStart
from millpond.app.settings import parse_address
from millpond.cli.asking import Asking, CannotReach
from millpond.cli.cluster_state import ClusterState, look
from millpond.cli.documents import as_json, as_yaml
from millpond.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from millpond.protocol.messages.fields import Message
from millpond.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse

cluster = typer.Typer(name="cluster", help="Look at a cluster; say which of its brokers vote.", no_args_is_help=True)

Bootstrap = Annotated[str, Option(help="Any broker of the cluster.", metavar="HOST:PORT")]
Timeout = Annotated[float, Option(help="How long to wait for each answer.", metavar="SECONDS", min=0.1)]
BrokerId = Annotated[int, Argument(help="Its node id.", metavar="BROKER")]
HERE = "127.0.0.1:9092"


class Output(Enum):
    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


@cluster.command()
def status(
    bootstrap: Bootstrap = HERE,
    output: Annotated[Output, Option(help="For people, or for programs.")] = Output.TABLE,
    timeout: Timeout = 10.0,
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


@cluster.command()
def demote(broker: BrokerId, bootstrap: Bootstrap = HERE, timeout: Timeout = 10.0) -> None:
    """A broker no longer votes on the cluster's metadata; what it keeps, it goes on keeping.

    Where a voter has lost its disk: demote it, start it with an empty data directory and with peers that do not name
    it, and promote it.
    """
    asked = RemoveRaftVoterRequest(voter_id=broker)
    _change(asked, RemoveRaftVoterResponse, bootstrap, timeout)
    typer.echo(f"broker {broker} does not vote any more")


@cluster.command()
def promote(broker: BrokerId, bootstrap: Bootstrap = HERE, timeout: Timeout = 10.0) -> None:
    """A broker that has joined votes on the cluster's metadata too."""
    asked = AddRaftVoterRequest(voter_id=broker, timeout_ms=int(timeout * 1000))
    _change(asked, AddRaftVoterResponse, bootstrap, timeout)
    typer.echo(f"broker {broker} votes")


Answers = TypeVar("Answers", RemoveRaftVoterResponse, AddRaftVoterResponse)


def _change(request: Message, response_class: type[Answers], bootstrap: str, timeout: float) -> None:
    address = parse_address("--bootstrap", bootstrap)
    try:
        with Asking.connect(address.host, address.port, seconds_max=timeout) as broker:
            answer = broker.ask(request, response_class)
    except CannotReach as error:
        raise CannotStart(str(error)) from None
    if answer.error_code:
        raise CannotStart(f"refused: {answer.error_message or answer.error_code}")


def _show(state: ClusterState) -> None:
    # What draws tables is slow to load, and programs have no use for it.
    from millpond.cli.cluster_tables import show  # noqa: PLC0415

    show(state)
