"""Help and completion: every command has examples, and each of them is a command that parses."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from millpond.cli.commands import app
from millpond.testing.broker import InProcessBroker
from tests.cli.calling import Command

ROOT: Any = typer.main.get_command(app)


def commands(group: Any, *names: str) -> Iterator[tuple[tuple[str, ...], Any]]:  # noqa: ANN401
    for name, each in group.commands.items():
        if hasattr(each, "commands"):
            yield from commands(each, *names, name)
        else:
            yield (*names, name), each


COMMANDS = dict(commands(ROOT))
EXAMPLES = [
    (" ".join(names), part.split("|")[-1].strip() if "millpond" in part.split("|")[-1] else part)
    for names, each in COMMANDS.items()
    for line in (each.epilog or "").split("\n\n")[1:]
    for part in [line.strip().replace("\\[", "[")]
]


def test_the_verbs_are_those_of_the_documents() -> None:
    assert {names[0] for names in COMMANDS} == {
        *("up", "topics", "produce", "consume", "groups", "queue", "delay", "config", "cluster", "pipeline"),
        *("bench", "doctor"),
    }


@pytest.mark.parametrize("names", COMMANDS, ids=" ".join)
def test_help_has_examples_and_says_what_every_option_is(millpond: Command, names: tuple[str, ...]) -> None:
    out = millpond.ok(*names, "--help")
    assert f"Usage: millpond {' '.join(names)}" in out
    assert "Examples" in out
    assert f"millpond {' '.join(names)}" in out.split("Examples")[1]
    for parameter in COMMANDS[names].params:
        assert parameter.hidden or parameter.help, parameter.name


@pytest.mark.parametrize(("of", "example"), EXAMPLES)
def test_an_example_is_a_command_that_parses(of: str, example: str) -> None:
    words = shlex.split(example)
    assert words[0] == "millpond"
    at, context, rest = ROOT, typer.Context(ROOT, info_name="millpond"), words[1:]
    while hasattr(at, "commands"):
        name, at, rest = at.resolve_command(context, rest)
        context = typer.Context(at, info_name=name, parent=context)
    at.make_context(context.info_name, list(rest))


def test_every_command_that_shows_something_shows_it_in_three_ways() -> None:
    without = {"up", "consume", "cluster demote", "cluster promote"}
    without |= {"pipeline run", "pipeline generate", "pipeline compact", "pipeline demo"}
    for names, each in COMMANDS.items():
        has = any("--output" in parameter.opts for parameter in each.params)
        assert has == (" ".join(names) not in without), names


def test_shells_complete_commands_options_and_names(broker: InProcessBroker) -> None:
    broker.create_topic("orders")
    broker.create_topic("outgoing")

    def completed(words: str, at: int) -> list[str]:
        environ = {**os.environ, "_MILLPOND_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(at)}
        environ["MILLPOND_BOOTSTRAP"] = broker.bootstrap
        command = [sys.executable, "-m", "millpond.cli"]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
        return re.split(r"\s+", done.stdout.strip())

    assert completed("millpond gr", 1) == ["groups"]
    assert completed("millpond topics describe or", 3) == ["orders"]
    assert completed("millpond groups reset kitchen --dry", 4) == ["--dry-run"]


def test_help_loads_neither_the_client_nor_the_broker() -> None:
    program = (
        "import sys; from millpond.cli.__main__ import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = [name for name in sys.modules if name.startswith(('millpond.client', 'millpond.broker', 'asyncio'))]\n"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
