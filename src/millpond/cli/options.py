"""The options that commands share, and what stands under each command's help.

Loads nothing but the framework, so that `millpond --help` comes at once. Driven by every command.
"""

from collections.abc import Sequence
from enum import Enum
from typing import Annotated, Final

from typer import Option

from millpond.model.errors import InvalidSetting

HERE: Final = "127.0.0.1:9092"
BOOTSTRAP_VARIABLE: Final = "MILLPOND_BOOTSTRAP"


class Output(Enum):
    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


Bootstrap = Annotated[
    str,
    Option("--bootstrap", "-b", help="Any brokers of the cluster.", metavar="HOST:PORT,...", envvar=BOOTSTRAP_VARIABLE),
]
Timeout = Annotated[float, Option(help="How long to try before giving up.", metavar="SECONDS", min=0.1)]
Shown = Annotated[Output, Option("--output", "-o", help="For people, or for programs.")]
Sets = Annotated[
    list[str] | None, Option("--set", help="A setting by Kafka's name; may be repeated.", metavar="NAME=VALUE")
]
Unsets = Annotated[list[str] | None, Option("--unset", help="A setting to be put back to its default.", metavar="NAME")]
DryRun = Annotated[bool, Option("--dry-run", help="Show what would happen, and change nothing.")]


def examples(*lines: str) -> str:
    """For `epilog=`; every one of them is a command that works."""
    return "\n\n".join(["[dim]Examples[/dim]", *(f"  {line.replace('[', chr(92) + '[')}" for line in lines)])


def pairs(option: str, given: Sequence[str] | None, *, example: str) -> list[tuple[str, str]]:
    """Of an option that takes name=value, and may be repeated."""
    found: list[tuple[str, str]] = []
    for each in given or ():
        name, equals, value = each.partition("=")
        if not equals or not name.strip():
            raise InvalidSetting(f"{option} is {each[:80]!r}; allowed is NAME=VALUE; write for instance {example}")
        found.append((name.strip(), value))
    return found


def changes(sets: Sequence[str] | None, unsets: Sequence[str] | None) -> dict[str, str | None]:
    """What --set and --unset come to; None for a default."""
    wanted: dict[str, str | None] = dict(pairs("--set", sets, example="--set retention.ms=60000"))
    for name in unsets or ():
        if name in wanted:
            raise InvalidSetting(f"{name} is both set and unset; leave one of them out")
        wanted[name] = None
    if not wanted:
        raise InvalidSetting("nothing to change was given; write for instance --set retention.ms=60000")
    return wanted
