"""`millpond`, also as `python -m millpond.cli`.

Whatever goes wrong is one line on stderr; exit_codes.py says what the process ends with. A command loads what it needs
when it runs, so that help and refusals come at once.
"""

import os
import sys
from collections.abc import Sequence
from typing import Annotated, NoReturn

import typer
from typer.exceptions import TyperException

from millpond import __version__
from millpond.app.refusals import CannotStart
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
from millpond.model.errors import MillpondError

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


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    sys.exit(_exit_code(list(sys.argv[1:] if arguments is None else arguments)))


def _exit_code(arguments: list[str]) -> int:
    try:
        # Not in the framework's standalone mode: that draws boxes around what one line says.
        return app(arguments or ["--help"], prog_name="millpond", standalone_mode=False) or exit_codes.DONE
    except TyperException as error:
        said = complaint(error)
        # Without a word it has shown its help, for want of a command.
        context = getattr(error, "ctx", None)
        command = "millpond" if context is None else context.command_path
        return _refuse(f"{said}; see {command} --help", exit_codes.ASKED_WRONGLY) if said else exit_codes.ASKED_WRONGLY
    except MillpondError as error:
        return _refuse(str(error), exit_codes.of(error))
    except CannotStart as error:
        return _refuse(str(error), exit_codes.FAILED)
    except OutputClosed:
        return _leave_quietly()
    except (KeyboardInterrupt, typer.Abort):
        return exit_codes.INTERRUPTED


def _refuse(message: str, code: int) -> int:
    typer.echo(f"millpond: {' '.join(message.split())}", err=True)
    return code


def _leave_quietly() -> int:
    """Whoever read the output has enough. What is left of it must not be written at exit, and complained about."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
    return exit_codes.PIPE_CLOSED


if __name__ == "__main__":
    main()
