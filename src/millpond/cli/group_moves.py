"""Where a group is moved to, and which of its partitions.

Invariant: an offset is taken only where the partition has it; a dry run decides the same and changes nothing.
Driven by groups.py.
"""

from collections.abc import Sequence
from typing import Literal

from millpond.app.clock import SystemClock
from millpond.cli.moments import parse_moment
from millpond.client import Admin, TopicPartition
from millpond.client.admin_groups import Target
from millpond.model.errors import InvalidSetting
from millpond.model.ids import Offset

Wish = Literal["earliest", "latest"] | Offset | dict[str, int]


def parse_target(to: str | None, to_offset: int | None, to_time: str | None, shift: int | None) -> Wish:
    given = [each for each in (to, to_offset, to_time, shift) if each is not None]
    if len(given) != 1:
        raise InvalidSetting(
            f"{len(given)} targets were given; one is needed: --to earliest|latest, --to-offset, --to-time or --shift"
        )
    if to_offset is not None:
        return Offset(to_offset)
    if shift is not None:
        return {"shift": shift}
    if to_time is not None:
        return {"timestamp": parse_moment("--to-time", to_time, now_ms=SystemClock().wall_ms())}
    match to:
        case "earliest":
            return "earliest"
        case "latest":
            return "latest"
        case _:
            raise InvalidSetting(f"--to is {to!r}; allowed is earliest or latest; for others see --help")


async def move(
    admin: Admin, group: str, wish: Wish, named: Sequence[str] | None, *, dry_run: bool
) -> list[dict[str, object]]:
    """A row for each partition: where it was, and where it is, or would be."""
    before = await admin.group_offsets(group)
    places = await _places(admin, group, before, named)
    wanted: dict[TopicPartition, Offset]
    if isinstance(wish, int):
        wanted = await _checked(admin, dict.fromkeys(places, wish))
    else:
        topics = sorted({at.topic for at in places})
        target: Target = wish
        found = await admin.reset_group(group, target, topics=topics, dry_run=True)
        wanted = {at: found[at] for at in places}
    if not dry_run:
        await admin.reset_group(group, wanted)
    return [
        {"topic": at.topic, "partition": at.partition, "from": before.get(at), "to": wanted[at]}
        for at in sorted(places)
    ]


async def _places(
    admin: Admin, group: str, committed: dict[TopicPartition, Offset], named: Sequence[str] | None
) -> list[TopicPartition]:
    if not named:
        if not committed:
            await admin.describe_group(group)  # raises where there is no such group
            raise InvalidSetting(f"group {group} has committed nothing; say with --topic which partitions are meant")
        return list(committed)
    places: list[TopicPartition] = []
    for text in named:
        topic, colon, number = text.partition(":")
        there = [TopicPartition(topic, each.partition) for each in (await admin.describe_topic(topic)).partitions]
        if colon and (not number.isdecimal() or int(number) >= len(there)):
            raise InvalidSetting(f"--topic is {text!r}; topic {topic} has partitions 0 to {len(there) - 1}")
        places += [there[int(number)]] if colon else there
    return list(dict.fromkeys(places))


async def _checked(admin: Admin, wanted: dict[TopicPartition, Offset]) -> dict[TopicPartition, Offset]:
    starts = await admin.offsets_at(dict.fromkeys(wanted, "earliest"))
    ends = await admin.offsets_at(dict.fromkeys(wanted, "latest"))
    for at, offset in wanted.items():
        if not starts[at] <= offset <= ends[at]:
            raise InvalidSetting(
                f"--to-offset is {offset}; {at} has {starts[at]} to {ends[at]}. Name the partitions that have it with "
                f"--topic {at.topic}:{at.partition}"
            )
    return wanted
