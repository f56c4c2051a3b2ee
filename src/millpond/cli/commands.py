"""All commands, as the framework knows them; what it raises is told in one line.

A command loads what it needs when it runs, so that help and refusals come at once. Driven by __main__.py.
"""

import os
import sys
from typing import Annotated

import typer
from typer.exceptions import TyperException

from millpond import __version__
from millpond.cli import exit_codes
from millpond.cli.bench import BENCH_EXAMPLES, bench
from millpond.cli.cluster import cluster
from millpond.cli.complaints import complaint
from millpond.cli.config import config
from millpond.cli.consume import CONSUME_EXAMPLES, consume
from millpond.cli.delay import delay
from millpond.cli.doctor import DOCTOR_EXAMPLES, doctor
from millpond.cli.groups import groups
from millpond.cli.pipeline import pipeline
from millpond.cli.produce import PRODUCE_EXAMPLES, produce
from millpond.cli.queue import queue
from millpond.cli.showing import OutputClosed
from millpond.cli.topics import topics
from millpond.cli.up import UP_EXAMPLES, up

app = typer.Typer(name="millpond", rich_markup_mode="rich")
app.command(epilog=UP_EXAMPLES)(up)
app.add_typer(topics)
app.command(epilog=PRODUCE_EXAMPLES)(produce)
app.command(epilog=CONSUME_EXAMPLES)(consume)
app.add_typer(groups)
app.add_typer(queue)
app.add_typer(delay)
app.add_typer(config)
app.add_typer(cluster)
app.add_typer(pipeline)
app.command(epilog=BENCH_EXAMPLES)(bench)
app.command(epilog=DOCTOR_EXAMPLES)(doctor)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"millpond {__version__}")
        raise typer.Exit


@app.callback()
def millpond(
    version: Annotated[
        bool, typer.Option("--version", help="Say which version this is.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Millpond: Kafka's log and SQS's queue in one broker.

    Start a broker with [bold]millpond up[/bold] and point any Kafka client at 127.0.0.1:9092.
    """


def run(arguments: list[str]) -> int:
    """What the process ends with. Errors of Millpond's own are the caller's to tell."""
    try:
        # Not in the framework's standalone mode: that draws boxes around what one line says.
        return app(arguments or ["--help"], prog_name="millpond", standalone_mode=False) or exit_codes.DONE
    except TyperException as error:
        said = complaint(error)
        # Without a word it has shown its help, for want of a command.
        context = getattr(error, "ctx", None)
        command = "millpond" if context is None else context.command_path
        if said:
            typer.echo(f"millpond: {' '.join(said.split())}; see {command} --help", err=True)
        return exit_codes.ASKED_WRONGLY
    except OutputClosed:
        return _leave_quietly()
    except typer.Abort:
        return exit_codes.INTERRUPTED


def _leave_quietly() -> int:
    """Whoever read the output has enough. What is left of it must not be written at exit, and complained about."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
    return exit_codes.PIPE_CLOSED
