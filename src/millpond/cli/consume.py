"""`millpond consume`: messages as lines.

millpond consume orders --from -10 --follow
millpond consume orders --group kitchen --count 100 --format json
"""

from typing import Annotated

from typer import Argument, Option

from millpond.cli.completions import topic_names
from millpond.cli.options import HERE, Bootstrap, Timeout, examples
from millpond.model.errors import InvalidSetting

CONSUME_EXAMPLES = examples(
    "millpond consume orders",
    "millpond consume orders --from -10 --follow",
    "millpond consume orders --from-time 15m --format '{time} {key} {value}'",
    "millpond consume orders --partition 0 --from 42 --count 1 --format json",
    "millpond consume orders --group kitchen --follow",
)


def consume(
    topic: Annotated[str, Argument(help="The topic.", metavar="TOPIC", autocompletion=topic_names)],
    start: Annotated[
        str | None,
        Option(
            "--from",
            help="earliest, latest, an offset, or -N for the last N of each partition.  [dim]earliest[/dim]",
            metavar="WHERE",
        ),
    ] = None,
    from_time: Annotated[
        str | None, Option(help="From a time on: a date, 15m for so long ago, milliseconds.", metavar="WHEN")
    ] = None,
    group: Annotated[
        str | None, Option("--group", "-g", help="As a member of a group, whose offsets it commits.", metavar="NAME")
    ] = None,
    partitions: Annotated[
        list[int] | None, Option("--partition", help="Only this one; may be repeated.", metavar="N", min=0)
    ] = None,
    follow: Annotated[bool, Option("--follow", "-f", help="Wait for more, until Ctrl-C.")] = False,
    count: Annotated[int | None, Option("--count", "-n", help="End after so many.", metavar="N", min=1)] = None,
    message_format: Annotated[
        str,
        Option(
            "--format",
            help="value, json, or a text with {topic} {partition} {offset} {timestamp} {time} {key} {value} {headers}.",
            metavar="FORMAT",
        ),
    ] = "value",
    bootstrap: Bootstrap = HERE,
    timeout: Timeout = 10.0,
) -> None:
    """Print a topic's messages, a line each, up to where it ends now; with --follow also what comes after.

    Messages of a partition come in order. With --group, what was printed is committed, and the next call goes on
    from there; --from then says where a group begins that has committed nothing. In JSON, what is no UTF-8 is
    base64, in key_base64 and value_base64.
    """
    if start is not None and from_time is not None:
        raise InvalidSetting("--from and --from-time were both given; leave one of them out")
    if group is not None and (partitions or from_time or start not in (None, "earliest", "latest")):
        raise InvalidSetting(
            "--group goes on where the group is, in the partitions it assigns; leave out --partition, --from-time, "
            "and --from but for earliest and latest. To move a group there is millpond groups reset"
        )
    from millpond.cli.message_formats import writer  # noqa: PLC0415
    from millpond.cli.reading import Job, parse_start, read  # noqa: PLC0415

    job = Job(
        topic=topic,
        start=parse_start(start, from_time),
        group=group,
        partitions=partitions or None,
        follow=follow,
        count=count,
        write=writer(message_format),
    )
    read(bootstrap, timeout, job)
