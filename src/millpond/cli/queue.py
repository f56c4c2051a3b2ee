"""`millpond queue`: send messages to a queue, receive them, and say what became of them.

millpond queue send jobs --value 'one coffee' --delay 10m
millpond queue receive jobs --group kitchen --wait 20s
"""

import json
import sys
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from typing import Annotated, Any, Final

import typer
from typer import Argument, Option

from millpond.cli.completions import topic_names
from millpond.cli.moments import parse_span
from millpond.cli.options import Output, Shown, Timeout, examples, pairs
from millpond.cli.showing import Section, show
from millpond.model.errors import InvalidSetting

queue = typer.Typer(
    name="queue", help="Send messages to a queue, receive them, say what became of them.", no_args_is_help=True
)

DOOR: Final = "127.0.0.1:8080"
DOOR_VARIABLE: Final = "MILLPOND_DOOR"
BINARY: Final = "application/vnd.millpond.binary+json"
"""Messages in base64: a line need be no text."""
PORTION: Final = 1_000
"""Messages, or receipts, that go at a time."""

Name = Annotated[str, Argument(help="The queue's topic.", metavar="TOPIC", autocompletion=topic_names)]
Group = Annotated[
    str, Option("--group", "-g", help="Whose queue it is: each group gets every message.", metavar="NAME")
]
Door = Annotated[
    str, Option("--http", help="The HTTP doors of any brokers.", metavar="HOST:PORT,...", envvar=DOOR_VARIABLE)
]
Receipts = Annotated[
    list[str],
    Argument(help="As they were received; - reads them, or the JSON of receive, from stdin.", metavar="RECEIPT..."),
]
Span = "10s, 5m, 2h or 1d"


@queue.command(
    epilog=examples(
        "millpond queue send jobs 'one coffee' --key 'table 4'",
        "millpond queue send jobs 'wake up' --delay 10m --priority high",
        "millpond queue send jobs --file jobs.txt --ttl 1d",
        "seq 100 | millpond queue send jobs",
    )
)
def send(
    topic: Name,
    texts: Annotated[list[str] | None, Argument(help="Messages, instead of lines.", metavar="[TEXT]...")] = None,
    values: Annotated[
        list[str] | None, Option("--value", "-v", help="A message, instead of lines; may be repeated.", metavar="TEXT")
    ] = None,
    file: Annotated[str | None, Option("--file", "-f", help="Read it instead of stdin.", metavar="FILE")] = None,
    key: Annotated[str | None, Option("--key", "-k", help="The key of every message.", metavar="TEXT")] = None,
    headers: Annotated[
        list[str] | None,
        Option("--header", "-H", help="A header of every message; may be repeated.", metavar="NAME=VALUE"),
    ] = None,
    delay: Annotated[str | None, Option(help=f"Deliver it no earlier: {Span}.", metavar="SPAN")] = None,
    at: Annotated[
        str | None, Option(help="Deliver it no earlier: a date, or milliseconds since 1970.", metavar="WHEN")
    ] = None,
    priority: Annotated[str | None, Option(help="high, normal or low; or 9 to 0.", metavar="PRIORITY")] = None,
    ttl: Annotated[str | None, Option(help=f"Do not deliver it later: {Span}.", metavar="SPAN")] = None,
    http: Door = DOOR,
    timeout: Timeout = 30.0,
    output: Shown = Output.TABLE,
) -> None:
    """Send lines as messages to a queue, a message a line; the topic is made where the cluster allows that."""
    values = [*(texts or ()), *(values or ())] or None
    if file is not None and values:
        raise InvalidSetting("--file and messages were both given; leave one of them out")
    asked: dict[str, object] = {  # null is the same as left out
        "key": None if key is None else _base64(key),
        "headers": [
            {"name": name, "value": _base64(text)}
            for name, text in pairs("--header", headers, example="--header waiter=Ada")
        ],
        "delay_ms": None if delay is None else parse_span("--delay", delay),
        "deliver_at": at if at is None or not at.isdigit() else int(at),
        "priority": None if priority is None else _priority(priority),
        "ttl_ms": None if ttl is None else parse_span("--ttl", ttl),
    }
    sent: list[dict[str, Any]] = []
    with _door(http, topic, timeout) as door, _lines(values, file) as portions:
        for portion in portions:
            sent += door.post("messages", [{"value": _base64(each), **asked} for each in portion], form=BINARY)
    document = {"topic": topic, "messages": len(sent), "message_ids": [each["message_id"] for each in sent]}
    shown = sent[0]["message_id"] if len(sent) == 1 else f"{len(sent)} messages to {topic}"
    show(document, output, shown)


@queue.command(
    epilog=examples(
        "millpond queue receive jobs --group kitchen",
        "millpond queue receive jobs --group kitchen --max 10 --wait 20s --visibility 5m",
        "millpond queue receive jobs --group kitchen --ack --output json",
    )
)
def receive(
    topic: Name,
    group: Group,
    count: Annotated[int, Option("--max", "-n", help="So many at most.", metavar="N", min=1)] = 1,
    wait: Annotated[str, Option(help="How long to wait for the first.", metavar="SPAN")] = "0s",
    visibility: Annotated[
        str | None, Option(help="How long they are yours.  [dim]as the group says[/dim]", metavar="SPAN")
    ] = None,
    is_acked: Annotated[bool, Option("--ack", help="Acknowledge what was printed.")] = False,
    http: Door = DOOR,
    timeout: Timeout = 10.0,
    output: Shown = Output.TABLE,
) -> None:
    """Receive messages. They come again unless they are acknowledged in time, by the receipts that come with them."""
    wait_ms = parse_span("--wait", wait)
    wish: dict[str, object] = {"group": group, "max": count, "wait_ms": wait_ms}
    if visibility is not None:
        wish["visibility_ms"] = parse_span("--visibility", visibility)
    with _door(http, topic, timeout) as door:
        messages = door.post("receive", wish, wait_seconds=wait_ms / 1000)["messages"]
        rows = [{**each, **{name: _text(each, name) for name in ("key", "value")}} for each in messages]
        columns = ("message_id", "attempt", "key", "value") + (() if is_acked else ("receipt",))
        show({"messages": messages}, output, Section(rows, columns) if rows else "there are no messages now")
        if is_acked and messages:
            door.post("ack", {"group": group, "receipts": [each["receipt"] for each in messages]})


@queue.command(
    epilog=examples(
        "millpond queue ack jobs --group kitchen AYhWFxLo5SFq_L0Ew0AhLvcAAAAAAAAAAAAAAAA",
        "millpond queue receive jobs --group kitchen -o json | millpond queue ack jobs --group kitchen -",
    )
)
def ack(
    topic: Name,
    receipts: Receipts,
    group: Group,
    http: Door = DOOR,
    timeout: Timeout = 10.0,
    output: Shown = Output.TABLE,
) -> None:
    """Acknowledge messages: they are done."""
    count = _settle(http, topic, timeout, "ack", receipts, {"group": group})
    show({"settled": count}, output, f"{count} message{'' if count == 1 else 's'} acknowledged")


@queue.command(
    epilog=examples(
        "millpond queue nack jobs --group kitchen --delay 5m --error 'no milk' AYhWFxLo5SFq_L0Ew0AhLvcAAAAAAAAAAAAAAAA"
    )
)
def nack(
    topic: Name,
    receipts: Receipts,
    group: Group,
    delay: Annotated[
        str | None, Option(help="Before the next delivery.  [dim]as the group says[/dim]", metavar="SPAN")
    ] = None,
    error: Annotated[str, Option(help="What went wrong; a dead letter has it.", metavar="TEXT")] = "",
    http: Door = DOOR,
    timeout: Timeout = 10.0,
    output: Shown = Output.TABLE,
) -> None:
    """Give messages back: they are delivered again, and become dead letters after the last attempt."""
    rest: dict[str, object] = {"group": group, "error": error}
    if delay is not None:
        rest["delay_ms"] = parse_span("--delay", delay)
    count = _settle(http, topic, timeout, "nack", receipts, rest)
    show({"settled": count}, output, f"{count} message{'' if count == 1 else 's'} given back")


@queue.command(
    epilog=examples("millpond queue extend jobs --group kitchen --for 10m AYhWFxLo5SFq_L0Ew0AhLvcAAAAAAAAAAAAAAAA")
)
def extend(
    topic: Name,
    receipts: Receipts,
    group: Group,
    span: Annotated[str, Option("--for", help=f"From now on: {Span}.", metavar="SPAN")],
    http: Door = DOOR,
    timeout: Timeout = 10.0,
    output: Shown = Output.TABLE,
) -> None:
    """Keep messages longer: nobody else receives them meanwhile."""
    rest: dict[str, object] = {"group": group, "visibility_ms": parse_span("--for", span)}
    count = _settle(http, topic, timeout, "extend", receipts, rest)
    show({"settled": count}, output, f"{count} message{'' if count == 1 else 's'} kept for {span}")


@queue.command(
    epilog=examples("millpond queue stats jobs --group kitchen", "millpond queue stats jobs -g kitchen -o json")
)
def stats(topic: Name, group: Group, http: Door = DOOR, timeout: Timeout = 10.0, output: Shown = Output.TABLE) -> None:
    """How many messages a group has before it, by state and partition."""
    with _door(http, topic, timeout) as door:
        found = door.get("stats", group=group)
    columns = ("partition", "ready", "in_flight", "waiting", "dying", "start_offset", "end_offset")
    told = f"{found['ready']} ready, {found['in_flight']} in flight, {found['waiting']} waiting, {found['dying']} dying"
    show(found, output, Section(found["partitions"], columns), told)


@queue.command(epilog=examples("millpond queue dlq jobs", "millpond queue dlq jobs --group kitchen --count 10 -o json"))
def dlq(
    topic: Name,
    group: Annotated[str | None, Option("--group", "-g", help="Only letters of this group.", metavar="NAME")] = None,
    count: Annotated[int, Option("--count", "-n", help="So many at most.", metavar="N", min=1)] = 100,
    http: Door = DOOR,
    timeout: Timeout = 10.0,
    output: Shown = Output.TABLE,
) -> None:
    """Read a queue's dead letters, the oldest first."""
    letters: list[dict[str, Any]] = []
    found: str | None = None
    query: dict[str, str | int] = {} if group is None else {"group": group}
    with _door(http, topic, timeout) as door:
        while len(letters) < count:
            page = door.get("dlq", count=min(PORTION, count - len(letters)), **query)
            letters += page["messages"]
            found = page["topic"]
            if page["next"] is None:
                break
            query["after"] = page["next"]
    rows = [{**each, "value": each.get("value", each.get("value_base64"))} for each in letters]
    section = Section(rows, ("origin", "group", "attempts", "error", "key", "value"))
    show({"topic": found, "messages": letters}, output, section if rows else "there are no dead letters")


@queue.command(
    epilog=examples("millpond queue redrive jobs --group kitchen", "millpond queue redrive jobs -g kitchen --max 10")
)
def redrive(
    topic: Name,
    group: Annotated[
        str | None, Option("--group", "-g", help="Whose letters.  [dim]every group's[/dim]", metavar="NAME")
    ] = None,
    count: Annotated[int | None, Option("--max", "-n", help="So many at most.", metavar="N", min=1)] = None,
    http: Door = DOOR,
    timeout: Timeout = 60.0,
    output: Shown = Output.TABLE,
) -> None:
    """Send dead letters back to their topic, those of one group or of all."""
    redriven = 0
    with _door(http, topic, timeout) as door, _progress(f"back to {topic}", count) as advance:
        while count is None or redriven < count:
            portion = PORTION if count is None else min(PORTION, count - redriven)
            sent = door.post("redrive", {"group": group, "max": portion})["redriven"]
            redriven += sent
            advance(sent)
            if sent < portion:
                break
    show({"redriven": redriven}, output, f"{redriven} message{'' if redriven == 1 else 's'} sent back to {topic}")


def _priority(text: str) -> str | int:
    """Looked at here, so that nobody types messages before it is refused."""
    if text in ("high", "normal", "low"):
        return text
    if len(text) == 1 and text.isdecimal():
        return int(text)
    raise InvalidSetting(
        f"--priority is {text[:80]!r}; allowed is high, normal or low, or a number from 9, the highest, to 0; "
        "write for instance --priority high"
    )


def _door(http: str, topic: str, timeout: float) -> Any:  # noqa: ANN401
    from millpond.app.settings import parse_address  # noqa: PLC0415
    from millpond.cli.queue_door import QueueDoor  # noqa: PLC0415

    return QueueDoor([parse_address("--http", each) for each in http.split(",")], topic, seconds_max=timeout)


def _settle(http: str, topic: str, timeout: float, what: str, receipts: list[str], rest: dict[str, object]) -> int:
    if receipts == ["-"]:
        receipts = _receipts_in(sys.stdin.read())
    settled = 0
    with _door(http, topic, timeout) as door, _progress(what, len(receipts)) as advance:
        for place in range(0, len(receipts), PORTION):
            portion = receipts[place : place + PORTION]
            settled += door.post(what, {**rest, "receipts": portion})["settled"]
            advance(len(portion))
    return settled


def _receipts_in(text: str) -> list[str]:
    """Words; or what `millpond queue receive --output json` has written."""
    if not text.lstrip().startswith("{"):
        return text.split()
    try:
        return [str(each["receipt"]) for each in json.loads(text)["messages"]]
    except (ValueError, KeyError, TypeError):
        raise InvalidSetting(
            "stdin is neither receipts nor what millpond queue receive --output json writes; send one of them"
        ) from None


def _text(message: dict[str, Any], name: str) -> str | None:
    """In base64 where it is no UTF-8."""
    text: str | None = message.get(name)
    return message.get(f"{name}_base64") if text is None else text


def _base64(text: str) -> str:
    """Bytes that are no UTF-8 came in as half a character each."""
    return b64encode(text.encode(errors="surrogateescape")).decode()


@contextmanager
def _lines(values: list[str] | None, file: str | None) -> Iterator[Iterator[list[str]]]:
    """Portions of what is to be sent; of a terminal line by line."""
    if values is not None:
        yield iter([values])
        return
    if file is None:
        if isinstance(sys.stdin, TextIOWrapper):
            sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape")
        yield _portions(sys.stdin, 1 if sys.stdin.isatty() else PORTION, lambda _: None)
        return
    try:
        opened = open(file, encoding="utf-8", errors="surrogateescape")  # noqa: SIM115
    except OSError as error:
        raise InvalidSetting(
            f"--file is {file!r}, which cannot be read ({error.strerror}); name a file that is there"
        ) from None
    with opened, _progress(file, None) as advance:
        yield _portions(opened, PORTION, advance)


def _portions(lines: Any, size: int, advance: Any) -> Iterator[list[str]]:  # noqa: ANN401
    portion: list[str] = []
    for line in lines:
        portion.append(line.rstrip("\n"))
        if len(portion) >= size:
            yield portion
            advance(len(portion))
            portion = []
    if portion:
        yield portion


@contextmanager
def _progress(what: str, total: int | None) -> Iterator[Any]:
    """A bar for whoever watches."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import Progress  # noqa: PLC0415

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=total)
        yield lambda count: progress.advance(task, count)
