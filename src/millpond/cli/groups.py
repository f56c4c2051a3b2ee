"""`millpond groups`: list groups, look at them, change their settings, move and delete them.

millpond groups lag kitchen
millpond groups reset kitchen --to earliest --dry-run
"""

from typing import Annotated

import typer
from typer import Argument, Option

from millpond.cli.completions import group_names
from millpond.cli.confirming import Yes, confirm
from millpond.cli.options import HERE, Bootstrap, DryRun, Output, Sets, Shown, Timeout, Unsets, changes, examples
from millpond.cli.showing import Section, show

groups = typer.Typer(
    name="groups", help="List groups, look at their lag, change, move and delete them.", no_args_is_help=True
)

Name = Annotated[str, Argument(help="The group.", metavar="GROUP", autocompletion=group_names)]
LAG_COLUMNS = ("topic", "partition", "committed", "end", "lag", "lag_seconds")


@groups.command(name="list", epilog=examples("millpond groups list", "millpond groups list --output json"))
def list_groups(bootstrap: Bootstrap = HERE, timeout: Timeout = 10.0, output: Shown = Output.TABLE) -> None:
    """All groups, what they are and their states; a share group is one of a queue."""
    from millpond.cli.session import talk  # noqa: PLC0415

    found = talk(bootstrap, timeout, lambda admin: admin.groups())
    rows = [{"group": each.group, "protocol": each.protocol, "state": each.state} for each in found.values()]
    show({"groups": rows}, output, Section(rows, ("group", "protocol", "state")) if rows else "there are no groups")


@groups.command(epilog=examples("millpond groups describe kitchen", "millpond groups describe kitchen --output yaml"))
def describe(name: Name, bootstrap: Bootstrap = HERE, timeout: Timeout = 10.0, output: Shown = Output.TABLE) -> None:
    """A group's state, its members and the partitions they have, and its lag."""
    from millpond.cli.group_state import GroupState  # noqa: PLC0415
    from millpond.cli.session import talk  # noqa: PLC0415

    state = talk(bootstrap, timeout, lambda admin: GroupState.look(admin, name))
    columns = ("member_id", "instance_id", "client_id", "host", "assigned")
    show(
        state.document(),
        output,
        f"Group {name}: {state.state}, {state.protocol} protocol, assignor {state.assignor or 'none'}",
        Section(state.members, columns, "Members") if state.members else "it has no members",
        Section(state.partitions, LAG_COLUMNS, "Lag") if state.partitions else "it has committed nothing",
    )


@groups.command(epilog=examples("millpond groups lag kitchen", "millpond groups lag kitchen -o json"))
def lag(name: Name, bootstrap: Bootstrap = HERE, timeout: Timeout = 10.0, output: Shown = Output.TABLE) -> None:
    """How far a group is behind: in messages, and by the age of the oldest message it has not committed."""
    from millpond.cli.group_state import lag_rows  # noqa: PLC0415
    from millpond.cli.session import talk  # noqa: PLC0415

    rows = talk(bootstrap, timeout, lambda admin: lag_rows(admin, name))
    behind = [each["lag_seconds"] for each in rows if isinstance(each["lag_seconds"], float)]
    messages = sum(each["lag"] for each in rows if isinstance(each["lag"], int))
    begun = sum(each["committed"] is None for each in rows)
    document = {"group": name, "lag": messages, "lag_seconds": max(behind, default=None), "partitions": rows}
    show(
        document,
        output,
        Section(rows, LAG_COLUMNS) if rows else "it has committed nothing",
        f"{messages} message{'' if messages == 1 else 's'} behind, the oldest for {max(behind, default=0.0):g} s"
        + (f"; nothing is committed of {begun} partition{'' if begun == 1 else 's'}" if begun else ""),
    )


@groups.command(
    epilog=examples(
        "millpond groups alter kitchen --set millpond.order=key --set share.delivery.count.limit=3",
        "millpond groups alter kitchen --unset millpond.order",
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
    """Change a group's settings, whether it is there yet or not; those that are not named stay as they are."""
    wanted = changes(sets, unsets)
    from millpond.cli.session import talk  # noqa: PLC0415

    talk(bootstrap, timeout, lambda admin: admin.alter_group(name, wanted))
    show({"group": name, "changed": wanted}, output, f"group {name} is changed: {', '.join(wanted)}")


@groups.command(epilog=examples("millpond groups settings kitchen", "millpond groups settings kitchen -o json"))
def settings(name: Name, bootstrap: Bootstrap = HERE, timeout: Timeout = 10.0, output: Shown = Output.TABLE) -> None:
    """A group's settings, also those that are the default."""
    from millpond.cli.session import talk  # noqa: PLC0415

    found = talk(bootstrap, timeout, lambda admin: admin.group_configs(name))
    rows = [{"name": key, "value": each.value, "default": each.is_default} for key, each in sorted(found.items())]
    show({"group": name, "settings": rows}, output, Section(rows, ("name", "value", "default")))


@groups.command(
    epilog=examples(
        "millpond groups reset kitchen --to earliest --dry-run",
        "millpond groups reset kitchen --to-time 2h",
        "millpond groups reset kitchen --shift -100 --topic orders",
        "millpond groups reset kitchen --to-offset 42 --topic orders:0",
    )
)
def reset(
    name: Name,
    to: Annotated[str | None, Option(help="To the start or the end.", metavar="earliest|latest")] = None,
    to_offset: Annotated[int | None, Option(help="To an offset.", metavar="N", min=0)] = None,
    to_time: Annotated[
        str | None, Option(help="To the first message not older: a date, 2h for so long ago.", metavar="WHEN")
    ] = None,
    shift: Annotated[int | None, Option(help="By so many messages; back with a minus.", metavar="N")] = None,
    topics: Annotated[
        list[str] | None,
        Option(
            "--topic",
            help="Only this topic or partition; may be repeated.  [dim]all it has committed[/dim]",
            metavar="TOPIC[:N]",
        ),
    ] = None,
    dry_run: DryRun = False,
    bootstrap: Bootstrap = HERE,
    timeout: Timeout = 10.0,
    output: Shown = Output.TABLE,
) -> None:
    """Move a group to other offsets, while nobody is in it. One of --to, --to-offset, --to-time and --shift."""
    from millpond.cli.group_moves import move, parse_target  # noqa: PLC0415
    from millpond.cli.session import talk  # noqa: PLC0415

    target = parse_target(to, to_offset, to_time, shift)
    rows = talk(bootstrap, timeout, lambda admin: move(admin, name, target, topics, dry_run=dry_run))
    show(
        {"group": name, "dry_run": dry_run, "partitions": rows},
        output,
        Section(rows, ("topic", "partition", "from", "to")),
        "nothing was changed: a dry run" if dry_run else f"group {name} goes on from there",
    )


@groups.command(epilog=examples("millpond groups delete kitchen", "millpond groups delete kitchen --yes"))
def delete(
    name: Name,
    yes: Yes = False,
    bootstrap: Bootstrap = HERE,
    timeout: Timeout = 10.0,
    output: Shown = Output.TABLE,
) -> None:
    """Delete a group and its offsets, while nobody is in it."""
    confirm(f"Delete group {name} and its offsets?", yes)
    from millpond.cli.session import talk  # noqa: PLC0415

    talk(bootstrap, timeout, lambda admin: admin.delete_group(name))
    show({"deleted": [name]}, output, f"group {name} is deleted")
