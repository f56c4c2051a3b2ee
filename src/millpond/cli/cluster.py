"""`millpond cluster`: what a cluster says of itself, and which of its brokers vote.

millpond cluster status --bootstrap 127.0.0.1:9092
millpond cluster demote 3
millpond cluster promote 3
"""

from typing import Annotated

import typer
from typer import Argument

from millpond.cli.options import HERE, Bootstrap, Output, Shown, Timeout, examples
from millpond.cli.showing import show, write

cluster = typer.Typer(name="cluster", help="Look at a cluster; say which of its brokers vote.", no_args_is_help=True)

BrokerId = Annotated[int, Argument(help="Its node id.", metavar="BROKER")]


@cluster.command(epilog=examples("millpond cluster status", "millpond cluster status -b 127.0.0.1:9093 --output json"))
def status(bootstrap: Bootstrap = HERE, output: Shown = Output.TABLE, timeout: Timeout = 10.0) -> None:
    """The controller and its quorum, the brokers, and the partitions that are not as they should be."""
    from millpond.app.clock import SystemClock  # noqa: PLC0415
    from millpond.cli.asking import named_in  # noqa: PLC0415
    from millpond.cli.cluster_state import look  # noqa: PLC0415
    from millpond.cli.cluster_tables import drawn  # noqa: PLC0415

    state = look(named_in(bootstrap), seconds_max=timeout, now_ms=SystemClock().wall_ms())
    show(state.document(), output, *drawn(state))


@cluster.command(epilog=examples("millpond cluster demote 3"))
def demote(broker: BrokerId, bootstrap: Bootstrap = HERE, timeout: Timeout = 10.0) -> None:
    """A broker no longer votes on the cluster's metadata; what it keeps, it goes on keeping.

    Where a voter has lost its disk: demote it, start it with an empty data directory and with peers that do not name
    it, and promote it.
    """
    from millpond.cli.voters import demote as ask  # noqa: PLC0415

    ask(broker, bootstrap, timeout)
    write(f"broker {broker} does not vote any more")


@cluster.command(epilog=examples("millpond cluster promote 3"))
def promote(broker: BrokerId, bootstrap: Bootstrap = HERE, timeout: Timeout = 10.0) -> None:
    """A broker that has joined votes on the cluster's metadata too."""
    from millpond.cli.voters import promote as ask  # noqa: PLC0415

    ask(broker, bootstrap, timeout)
    write(f"broker {broker} votes")
