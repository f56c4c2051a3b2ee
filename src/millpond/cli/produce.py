"""`millpond produce`: lines as messages.

echo 'one coffee' | millpond produce orders
millpond produce orders --file orders.jsonl --format json
"""

from enum import Enum
from typing import Annotated

from typer import Argument, Option

from millpond.cli.completions import topic_names
from millpond.cli.options import HERE, Bootstrap, Output, Shown, Timeout, examples, pairs
from millpond.cli.showing import note, show
from millpond.model.errors import InvalidSetting

PRODUCE_EXAMPLES = examples(
    "echo 'one coffee' | millpond produce orders",
    "millpond produce orders --value 'one coffee' --key 'table 4' --header waiter=Ada",
    "millpond produce orders --file orders.txt --key-separator : --compression zstd",
    "millpond consume orders --format json | millpond produce copies --format json",
    "millpond produce clicks --file clicks.txt --rate 500",
)
BY_BATCH = ("murmur2", "consistent", "sticky")
"""Partitioners that leave messages without a key to the producer."""


class LineFormat(Enum):
    VALUE = "value"
    JSON = "json"


class Acks(Enum):
    ALL = "all"
    LEADER = "leader"
    NONE = "none"


class Compression(Enum):
    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


def produce(
    topic: Annotated[str, Argument(help="The topic.", metavar="TOPIC", autocompletion=topic_names)],
    file: Annotated[str | None, Option("--file", "-f", help="Read it instead of stdin.", metavar="FILE")] = None,
    values: Annotated[
        list[str] | None, Option("--value", "-v", help="A message, instead of lines; may be repeated.", metavar="TEXT")
    ] = None,
    line_format: Annotated[LineFormat, Option("--format", help="What a line is.")] = LineFormat.VALUE,
    key: Annotated[str | None, Option("--key", "-k", help="The key of every message.", metavar="TEXT")] = None,
    key_separator: Annotated[
        str | None, Option("--key-separator", "-K", help="What stands between key and value in a line.", metavar="TEXT")
    ] = None,
    headers: Annotated[
        list[str] | None,
        Option("--header", "-H", help="A header of every message; may be repeated.", metavar="NAME=VALUE"),
    ] = None,
    partition: Annotated[int | None, Option(help="The partition of every message.", metavar="N", min=0)] = None,
    partitioner: Annotated[
        str,
        Option(help="Who chooses it: murmur2, consistent, round-robin, sticky, or a plugin's name.", metavar="NAME"),
    ] = "murmur2",
    rate: Annotated[float | None, Option(help="At most so many messages a second.", metavar="N", min=0.001)] = None,
    acks: Annotated[Acks, Option(help="Who has to have it.")] = Acks.ALL,
    compression: Annotated[Compression, Option(help="Of batches.")] = Compression.NONE,
    no_create: Annotated[bool, Option("--no-create", help="Do not make the topic where it is not there.")] = False,
    bootstrap: Bootstrap = HERE,
    timeout: Timeout = 30.0,
    output: Shown = Output.TABLE,
) -> None:
    """Send lines as messages, a message a line.

    Ends when the input does, and everything is acknowledged. A JSON line is an object with value and key (or
    value_base64 and key_base64), headers and timestamp, as millpond consume writes it.
    """
    if file is not None and values:
        raise InvalidSetting("--file and --value were both given; leave one of them out")
    if key_separator is not None:
        _check_separator(key_separator, key, line_format)
    from millpond.cli.sending import Job, send  # noqa: PLC0415

    job = Job(
        topic=topic,
        file=file,
        values=None if values is None else [each.encode(errors="surrogateescape") for each in values],
        is_json=line_format is LineFormat.JSON,
        key=None if key is None else key.encode(errors="surrogateescape"),
        key_separator=None if key_separator is None else key_separator.encode(errors="surrogateescape"),
        headers=tuple(
            (name, text.encode(errors="surrogateescape"))
            for name, text in pairs("--header", headers, example="--header waiter=Ada")
        ),
        partition=partition,
        by_message=partitioner not in BY_BATCH,
        rate=rate,
        create=not no_create,
    )
    settings = {"acks": acks.value, "compression": compression.value, "partitioner": partitioner}
    document = send(bootstrap, timeout, job, settings, on_interrupt=note)
    count = document["messages"]
    show(document, output, f"{count} message{'' if count == 1 else 's'} to {topic}{_where(document['partitions'])}")


def _check_separator(separator: str, key: str | None, line_format: LineFormat) -> None:
    if not separator:
        raise InvalidSetting("--key-separator is empty; allowed is a text that stands between key and value, such as :")
    if key is not None:
        raise InvalidSetting("--key and --key-separator were both given; leave one of them out")
    if line_format is LineFormat.JSON:
        raise InvalidSetting("--key-separator is for lines that are no JSON; leave it out")


def _where(partitions: object) -> str:
    """Only where it is short."""
    match partitions:
        case [{"partition": number, "first_offset": first, "last_offset": last}] if first is not None:
            return f", partition {number}, offset {first}" + (f" to {last}" if last != first else "")
        case [_, _, *_]:
            return f", {len(partitions)} partitions"
        case _:
            return ""
