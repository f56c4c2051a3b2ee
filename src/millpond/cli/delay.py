"""`millpond delay`: delayed messages that wait: list them, cancel one, let it be due at another moment.

millpond delay list orders
millpond delay cancel orders/0/42
"""

from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from millpond.cli.completions import topic_names
from millpond.cli.confirming import Yes, confirm
from millpond.cli.options import HERE, Bootstrap, Output, Shown, Timeout, examples
from millpond.cli.showing import Section, show

if TYPE_CHECKING:
    from millpond.client import Admin
    from millpond.client.admin_delays import DelayPage

delay = typer.Typer(name="delay", help="Look at delayed messages, cancel and reschedule them.", no_args_is_help=True)

MessageId = Annotated[str, Argument(help="topic/partition/offset, as its producer was told it.", metavar="MESSAGE")]
COLUMNS = ("message_id", "deliver_at", "recurring")


@delay.command(name="list", epilog=examples("millpond delay list", "millpond delay list orders --limit 1000"))
def list_delays(
    topic: Annotated[
        str | None,
        Argument(help="The topic; all that delay messages, where it is left out.", autocompletion=topic_names),
    ] = None,
    partition: Annotated[int | None, Option(help="Of this partition only.", metavar="N", min=0)] = None,
    after: Annotated[str | None, Option(help="What the page before said in next.", metavar="NEXT")] = None,
    limit: Annotated[int, Option(help="So many at most.", metavar="N", min=1, max=1000)] = 100,
    bootstrap: Bootstrap = HERE,
    timeout: Timeout = 10.0,
    output: Shown = Output.TABLE,
) -> None:
    """Messages that wait to be delivered, in the order in which they are due."""
    from datetime import UTC, datetime  # noqa: PLC0415

    from millpond.cli.session import talk  # noqa: PLC0415
    from millpond.model.errors import InvalidSetting  # noqa: PLC0415

    if topic is None:
        if partition is not None or after is not None:
            raise InvalidSetting("--partition or --after is given, and no topic; say which topic's")
        page = talk(bootstrap, timeout, lambda admin: _first_of_all(admin, limit))
    else:
        page = talk(
            bootstrap, timeout, lambda admin: admin.delays(topic, partition=partition, after=after, count=limit)
        )
    rows = [
        {
            "message_id": each.message_id,
            "deliver_at": datetime.fromtimestamp(each.due_ms / 1000, tz=UTC).isoformat(timespec="milliseconds"),
            "recurring": each.is_recurring,
        }
        for each in page.messages
    ]
    following = page.messages[-1].cursor if topic is not None and len(rows) == limit else None
    show(
        {"topic": topic, "pending": page.pending, "messages": rows, "next": following},
        output,
        Section(rows, COLUMNS) if rows else "no message waits",
        f"{page.pending} wait in all" + (f"; --after {following} shows more" if following else ""),
    )


async def _first_of_all(admin: "Admin", count: int) -> "DelayPage":
    from contextlib import suppress  # noqa: PLC0415

    from millpond.client.admin_delays import DelayPage  # noqa: PLC0415
    from millpond.model.errors import PolicyViolation, UnknownTopicOrPartition  # noqa: PLC0415

    pages: list[DelayPage] = []
    for topic in await admin.topics():
        with suppress(PolicyViolation, UnknownTopicOrPartition):  # it delays nothing, or was deleted meanwhile
            pages.append(await admin.delays(topic, count=count))
    found = sorted(each for page in pages for each in page.messages)
    return DelayPage(sum(page.pending for page in pages), found[:count])


@delay.command(epilog=examples("millpond delay cancel orders/0/42", "millpond delay cancel orders/0/42 --yes"))
def cancel(
    message: MessageId,
    yes: Yes = False,
    bootstrap: Bootstrap = HERE,
    timeout: Timeout = 10.0,
    output: Shown = Output.TABLE,
) -> None:
    """It will not be delivered; a schedule will not fire again."""
    confirm(f"Cancel {message}?", yes)
    from millpond.cli.session import talk  # noqa: PLC0415

    talk(bootstrap, timeout, lambda admin: admin.cancel_delay(message))
    show({"cancelled": message}, output, f"{message} will not be delivered")


@delay.command(epilog=examples("millpond delay reschedule orders/0/42 --at 2030-01-01T08:00:00Z"))
def reschedule(
    message: MessageId,
    at: Annotated[str, Option(help="A date, or milliseconds since 1970.", metavar="WHEN")],
    bootstrap: Bootstrap = HERE,
    timeout: Timeout = 10.0,
    output: Shown = Output.TABLE,
) -> None:
    """It will be delivered at another moment; one that is past means at once."""
    from millpond.app.clock import SystemClock  # noqa: PLC0415
    from millpond.cli.moments import parse_moment  # noqa: PLC0415
    from millpond.cli.session import talk  # noqa: PLC0415

    due_ms = parse_moment("--at", at, now_ms=SystemClock().wall_ms())
    talk(bootstrap, timeout, lambda admin: admin.reschedule_delay(message, due_ms))
    show({"message_id": message, "deliver_at_ms": due_ms}, output, f"{message} will be delivered then")
