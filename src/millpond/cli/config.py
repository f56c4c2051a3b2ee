"""`millpond config`: the settings of topics and of brokers.

millpond config describe --topic orders
millpond config alter --broker 1 --set log.retention.ms=86400000
"""

from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from millpond.cli.options import HERE, Bootstrap, Output, Sets, Shown, Timeout, Unsets, changes, examples
from millpond.cli.showing import Section, show
from millpond.model.errors import BrokerNotRegistered, InvalidSetting

if TYPE_CHECKING:
    from millpond.client import Admin

config = typer.Typer(name="config", help="Look at and change settings of topics and brokers.", no_args_is_help=True)

Topic = Annotated[str | None, Option("--topic", help="Of a topic.", metavar="TOPIC")]
ALL = "all"


@config.command(
    epilog=examples(
        "millpond config describe --topic orders",
        "millpond config describe --broker 1 --changed",
        "millpond config describe --broker 1 --name num.partitions -o json",
    )
)
def describe(
    topic: Topic = None,
    broker: Annotated[int | None, Option(help="Of a broker, by its node id.", metavar="N", min=0)] = None,
    changed: Annotated[bool, Option("--changed", help="Only what is not the default.")] = False,
    names: Annotated[list[str] | None, Option("--name", help="Only this one; may be repeated.", metavar="NAME")] = None,
    bootstrap: Bootstrap = HERE,
    timeout: Timeout = 10.0,
    output: Shown = Output.TABLE,
) -> None:
    """Every setting, its value, and whether that is the default."""
    _check_one(topic, broker)
    from millpond.cli.session import talk  # noqa: PLC0415
    from millpond.client import Admin  # noqa: PLC0415
    from millpond.client.admin import Setting  # noqa: PLC0415

    async def look(admin: Admin) -> dict[str, Setting]:
        if topic is not None:
            return await admin.topic_configs(topic)
        assert broker is not None
        await _check_there(admin, broker)
        return await admin.broker_configs(broker)

    found = talk(bootstrap, timeout, look)
    for name in names or ():
        if name not in found:
            raise InvalidSetting(f"--name is {name!r}, which is no setting of it; without --name all are shown")
    rows: list[dict[str, object]] = [
        {"name": name, "value": each.value, "default": each.is_default, "read_only": each.is_read_only}
        for name, each in sorted(found.items())
        if (not names or name in names) and not (changed and each.is_default)
    ]
    document = {"topic": topic, "broker": broker, "settings": rows}
    columns = ("name", "value", "default", "read_only")
    show(document, output, Section(rows, columns) if rows else "every setting is the default")


@config.command(
    epilog=examples(
        "millpond config alter --topic orders --set retention.ms=3600000",
        "millpond config alter --broker 1 --set log.retention.ms=3600000",
        "millpond config alter --broker all --unset log.retention.ms",
    )
)
def alter(
    topic: Topic = None,
    broker: Annotated[str | None, Option(help="Of a broker, by its node id, or of all.", metavar="N|all")] = None,
    sets: Sets = None,
    unsets: Unsets = None,
    bootstrap: Bootstrap = HERE,
    timeout: Timeout = 10.0,
    output: Shown = Output.TABLE,
) -> None:
    """Change settings; those that are not named stay as they are."""
    _check_one(topic, broker)
    wanted = changes(sets, unsets)
    if broker is not None and broker != ALL and not broker.isdecimal():
        raise InvalidSetting(f"--broker is {broker[:80]!r}; allowed is a node id such as 1, or all")
    from millpond.cli.session import talk  # noqa: PLC0415
    from millpond.client import Admin  # noqa: PLC0415

    async def work(admin: Admin) -> None:
        if topic is not None:
            await admin.alter_topic(topic, wanted)
        else:
            node_id = None if broker in (None, ALL) else int(broker)
            if node_id is not None:
                await _check_there(admin, node_id)
            await admin.alter_broker(node_id, wanted)

    talk(bootstrap, timeout, work)
    of = f"topic {topic}" if topic is not None else "all brokers" if broker == ALL else f"broker {broker}"
    document = {"topic": topic, "broker": broker, "changed": wanted}
    show(document, output, f"{of}: changed {', '.join(wanted)}")


def _check_one(topic: str | None, broker: object) -> None:
    if (topic is None) == (broker is None):
        raise InvalidSetting("one of --topic and --broker is needed; write for instance --topic orders")


async def _check_there(admin: "Admin", broker: int) -> None:
    """Also one that is down is there."""
    there = sorted(each.node_id for each in (await admin.cluster()).brokers)
    if broker not in there:
        raise BrokerNotRegistered(f"there is no broker {broker}; there are {', '.join(map(str, there))}")
