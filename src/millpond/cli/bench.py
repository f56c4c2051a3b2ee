"""`millpond bench`: a quick measurement of a broker that runs, from where the command runs.

millpond bench --messages 200000 --size 100

For figures to compare and publish there is `make bench`, which starts brokers of its own and measures the disk too.
"""

from typing import Annotated

from typer import Option

from millpond.cli.options import HERE, Bootstrap, Output, Shown, Timeout, examples
from millpond.cli.produce import Acks, Compression
from millpond.cli.showing import Section, show

BENCH_EXAMPLES = examples(
    "millpond bench", "millpond bench --messages 1000000 --size 200 --compression lz4", "millpond bench --output json"
)
COLUMNS = ("what", "messages", "seconds", "messages_per_second", "megabytes_per_second", "p50_ms", "p99_ms", "max_ms")


def bench(
    messages: Annotated[int, Option(help="How many.", metavar="N", min=1, max=100_000_000)] = 200_000,
    size: Annotated[int, Option(help="Bytes of each.", metavar="N", min=0, max=1_000_000)] = 100,
    singles: Annotated[
        int,
        Option(help="So many besides, each waited for, to see how long one takes.", metavar="N", min=0, max=1_000_000),
    ] = 200,
    partitions: Annotated[int, Option("--partitions", "-p", help="Of the topic it makes.", metavar="N", min=1)] = 1,
    replication_factor: Annotated[
        int | None, Option(help="Of that topic.  [dim]as the cluster is set[/dim]", metavar="N", min=1)
    ] = None,
    acks: Annotated[Acks, Option(help="Who has to have a message.")] = Acks.ALL,
    compression: Annotated[Compression, Option(help="Of batches.")] = Compression.NONE,
    bootstrap: Bootstrap = HERE,
    timeout: Timeout = 30.0,
    output: Shown = Output.TABLE,
) -> None:
    """Send messages to a broker that runs and read them back, and say how fast that was.

    It makes a topic of its own and deletes it. The client is one Python process, and often the slower side: these are
    figures to notice trouble by, not what a broker can do at most.
    """
    from millpond.cli.measuring import Plan, measure  # noqa: PLC0415

    plan = Plan(
        messages=messages,
        size=size,
        singles=singles,
        partitions=partitions,
        replication_factor=replication_factor,
        acks=acks.value,
        compression=compression.value,
    )
    rows = measure(bootstrap, timeout, plan)
    document = {"size": size, "partitions": partitions, "acks": acks.value, "compression": compression.value}
    title = f"{size} bytes each, {partitions} partition(s), acks {acks.value}, compression {compression.value}"
    show(document | {"results": rows}, output, Section(rows, COLUMNS, title))
