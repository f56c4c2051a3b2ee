"""`millpond up` is read without the framework where it can be: alike, and with little loaded."""

import subprocess
import sys
from pathlib import Path

import pytest
import typer.main
from hypothesis import given
from hypothesis import strategies as st

from millpond.cli import up as framework
from millpond.cli.commands import app, run
from millpond.cli.starting import INSECURE, OTHERS, SETTINGS, Start, read_plainly

HEAVY = {
    *("typer", "click", "rich", "pydantic"),  # the command line's
    *("httptools", "prometheus_client"),  # the HTTP door's, which is opened last
    *(
        "grpc",
        "google",
        "pyspark",
        "pyarrow",
        "numpy",
        "pandas",
        "yaml",
    ),  # shut doors', other commands'
    *("millpond.client", "millpond.pipeline", "millpond.api.http", "millpond.api.grpc", "millpond.cli.commands"),
}
NAMES = [*SETTINGS, *OTHERS, "insecure", "cluster-secret", "nothing"]
arguments = st.lists(
    st.one_of(
        st.sampled_from(NAMES).map(lambda name: [f"--{name}"]),
        st.tuples(st.sampled_from(NAMES), st.sampled_from(["1", "a=b", "", "-x", "--kafka"])).map(
            lambda pair: [f"--{pair[0]}={pair[1]}"]
        ),
        st.tuples(st.sampled_from(NAMES), st.sampled_from(["1", "a=b", "", "-1", "--http"])).map(
            lambda pair: [f"--{pair[0]}", pair[1]]
        ),
        st.sampled_from([["--help"], ["--"], ["-b"], ["more"], ["--=x"]]),
    ),
    max_size=5,
).map(lambda groups: ["up", *(each for group in groups for each in group)])


def test_every_option_of_up_is_known_without_the_framework() -> None:
    command = typer.main.get_command(app).commands["up"]  # type: ignore[attr-defined]
    declared = {name.removeprefix("--") for option in command.params for name in option.opts}
    assert declared - {"help"} == {*SETTINGS, *OTHERS, INSECURE, "cluster-secret"}


@given(arguments)
def test_what_is_read_plainly_is_what_the_framework_reads(given: list[str]) -> None:
    plainly = read_plainly(given)
    if plainly is not None:
        assert plainly == read_by_the_framework(given)


def read_by_the_framework(arguments: list[str]) -> Start:
    found: list[Start] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(framework, "start", found.append)
        assert run(arguments) == 0
    return found[0]


@pytest.mark.parametrize(
    "line",
    [
        "up --help",
        "up more",
        "up --kafka",
        "up --nothing 1",
        "up --cluster three",
        "up --kafka --http off",
        "--version",
    ],
)
def test_help_and_mistakes_are_the_frameworks(line: str) -> None:
    assert read_plainly(line.split()) is None


def test_a_broker_is_started_with_nothing_loaded_that_it_does_not_need(tmp_path: Path) -> None:
    """Until its doors are open; that keeps a start short."""
    program = f"""
import sys
from millpond.app.doors import Doors
from millpond.cli.__main__ import main

async def open_nothing(self, *arguments, **named):
    heavy = [name for name in {sorted(HEAVY)} if name in sys.modules]
    sys.exit(", ".join(heavy) or 0)

Doors.open = open_nothing
main(["up", "--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0", "--log-format", "json", "--data-dir", {str(tmp_path)!r}])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
