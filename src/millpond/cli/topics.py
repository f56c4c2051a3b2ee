"""`millpond topics`: make, list, look at, change and delete topics.

millpond topics create orders --partitions 3
millpond topics describe orders --output json
"""

from typing import Annotated

import typer
from typer import Argument, Option

from millpond.cli.completions import topic_names
from millpond.cli.confirming import Yes, confirm
from millpond.cli.options import HERE, Bootstrap, DryRun, Output, Sets, Shown, Timeout, Unsets, changes, examples, pairs
from millpond.cli.showing import Section, show
from millpond.model.errors import TopicAlreadyExists, UnknownTopicOrPartition

topics = typer.Typer(name="topics", help="Make, list, look at, change and delete topics.", no_args_is_help=True)

Name = Annotated[str, Argument(help="The topic.", metavar="TOPIC", autocompletion=topic_names)]
PARTITION_COLUMNS = ("partition", "leader", "replicas", "in_sync", "start", "end", "messages")


@topics.command(
    epilog=examples(
        "millpond topics create orders",
        "millpond topics create orders --partitions 6 --replication-factor 3 --set retention.ms=86400000",
        "millpond topics create orders --if-not-exists",
    )
)
def create(
    name: Name,
    partitions: Annotated[
        int | None, Option("--partitions", "-p", help="How many.  [dim]as the cluster is set[/dim]", metavar="N", min=1)
    ] = None,
    replication_factor: Annotated[
        int | None,
        Option(
            "--replication-factor",
            "-r",
            help="On how many brokers each is kept.  [dim]as the cluster is set[/dim]",
            metavar="N",
            min=1,
        ),
    ] = None,
    sets: Sets = None,
    if_not_exists: Annotated[bool, Option("--if-not-exists", help="Be content where it is there already.")] = False,
    dry_run: DryRun = False,
    bootstrap: Bootstrap = HERE,
    timeout: Timeout = 10.0,
    output: Shown = Output.TABLE,
) -> None:
    """Make a topic."""
    configs = dict(pairs("--set", sets, example="--set retention.ms=60000"))
    from millpond.cli.session import talk  # noqa: PLC0415
    from millpond.client import Admin  # noqa: PLC0415

    async def work(admin: Admin) -> dict[str, object]:
        made = True
        try:
            await admin.create_topic(
                name,
                partitions=partitions or -1,
                replication_factor=replication_factor or -1,
                configs=configs,
                validate_only=dry_run,
            )
        except TopicAlreadyExists:
            if not if_not_exists:
                raise
            made = False
        if dry_run:
            return {"name": name, "created": False, "partitions": partitions, "replicas": replication_factor}
        found = (await admin.describe_topic(name)).partitions
        return {"name": name, "created": made, "partitions": len(found), "replicas": len(found[0].replicas)}

    done = talk(bootstrap, timeout, work)
    if dry_run:
        sentence = f"topic {name} can be made; nothing was changed"
    else:
        sentence = f"topic {name} {'is made' if done['created'] else 'was there already'}: {_count(done['partitions'])}"
    show(done, output, sentence)


@topics.command(name="list", epilog=examples("millpond topics list", "millpond topics list --internal -o json"))
def list_topics(
    internal: Annotated[bool, Option("--internal", help="Millpond's own topics as well.")] = False,
    bootstrap: Bootstrap = HERE,
    timeout: Timeout = 10.0,
    output: Shown = Output.TABLE,
) -> None:
    """All topics."""
    from millpond.cli.session import talk  # noqa: PLC0415

    found = talk(bootstrap, timeout, lambda admin: admin.describe_topics(internal=internal))
    rows = [
        {
            "name": each.name,
            "partitions": len(each.partitions),
            "replicas": max((len(part.replicas) for part in each.partitions), default=0),
            "leaderless": sum(part.leader is None for part in each.partitions),
            "under_replicated": sum(len(part.in_sync) < len(part.replicas) for part in each.partitions),
            "internal": each.is_internal,
        }
        for each in found
    ]
    columns = ("name", "partitions", "replicas", "leaderless", "under_replicated", *(["internal"] if internal else []))
    show({"topics": rows}, output, Section(rows, columns) if rows else "there are no topics")


@topics.command(epilog=examples("millpond topics describe orders", "millpond topics describe orders --output yaml"))
def describe(name: Name, bootstrap: Bootstrap = HERE, timeout: Timeout = 10.0, output: Shown = Output.TABLE) -> None:
    """A topic's partitions, where they start and end, and the settings that are not the default."""
    from millpond.cli.session import talk  # noqa: PLC0415
    from millpond.cli.topic_state import TopicState  # noqa: PLC0415

    state = talk(bootstrap, timeout, lambda admin: TopicState.look(admin, name))
    document = state.document()
    title = f"Topic {name}, id {state.topic_id}: {_count(len(state.partitions))}"
    settings = [{"name": key, "value": value} for key, value in state.configs.items()]
    show(
        document,
        output,
        title,
        Section(state.partitions, PARTITION_COLUMNS),
        Section(settings, ("name", "value"), "Settings") if settings else "every setting is the default",
    )


@topics.command(
    epilog=examples(
        "millpond topics alter orders --set retention.ms=3600000 --set cleanup.policy=compact",
        "millpond topics alter orders --unset retention.ms",
    )
)
def alter(
    name: Name,
    sets: Sets = None,
    unsets: Unsets = None,
    bootstrap: Bootstrap = HERE,
    timeout: Timeout = 10.0,
    output: Shown = Output.TABLE,
) -> None:
    """Change a topic's settings; those that are not named stay as they are."""
    wanted = changes(sets, unsets)
    from millpond.cli.session import talk  # noqa: PLC0415

    talk(bootstrap, timeout, lambda admin: admin.alter_topic(name, wanted))
    show({"name": name, "changed": wanted}, output, f"topic {name} is changed: {', '.join(wanted)}")


@topics.command(name="add-partitions", epilog=examples("millpond topics add-partitions orders --total 6"))
def add_partitions(
    name: Name,
    total: Annotated[int, Option(help="How many it shall have then.", metavar="N", min=1)],
    bootstrap: Bootstrap = HERE,
    timeout: Timeout = 10.0,
    output: Shown = Output.TABLE,
) -> None:
    """Give a topic more partitions. Keys may belong to other partitions from then on."""
    from millpond.cli.session import talk  # noqa: PLC0415

    talk(bootstrap, timeout, lambda admin: admin.add_partitions(name, total=total))
    show({"name": name, "partitions": total}, output, f"topic {name} has {_count(total)} now")


@topics.command(epilog=examples("millpond topics delete orders", "millpond topics delete orders bills --if-exists -y"))
def delete(
    names: Annotated[list[str], Argument(help="The topics.", metavar="TOPIC...", autocompletion=topic_names)],
    if_exists: Annotated[bool, Option("--if-exists", help="Be content where one is not there.")] = False,
    yes: Yes = False,
    bootstrap: Bootstrap = HERE,
    timeout: Timeout = 10.0,
    output: Shown = Output.TABLE,
) -> None:
    """Delete topics and everything in them."""
    confirm(f"Delete {', '.join(names)} and everything in it?", yes)
    from millpond.cli.session import talk  # noqa: PLC0415
    from millpond.client import Admin  # noqa: PLC0415

    async def work(admin: Admin) -> dict[str, list[str]]:
        done: dict[str, list[str]] = {"deleted": [], "missing": []}
        for name in names:
            try:
                await admin.delete_topic(name)
                done["deleted"].append(name)
            except UnknownTopicOrPartition:
                if not if_exists:
                    raise
                done["missing"].append(name)
        return done

    done = talk(bootstrap, timeout, work)
    said = [f"topic {name} is deleted" for name in done["deleted"]]
    show(done, output, *said, *(f"topic {name} was not there" for name in done["missing"]))


def _count(partitions: object) -> str:
    return f"{partitions} partition{'' if partitions == 1 else 's'}"
