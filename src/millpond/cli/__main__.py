"""`millpond`, also as `python -m millpond.cli`.

Whatever goes wrong is one line on stderr. Exit codes: 0 done, 1 the machine did not allow it, 2 asked wrongly,
130 interrupted.
"""

import sys
from collections.abc import Sequence
from typing import Annotated, NoReturn

import typer
from typer.exceptions import TyperException

from millpond import __version__
from millpond.app.refusals import CannotStart
from millpond.cli.cluster import cluster
from millpond.cli.up import up
from millpond.model.errors import InvalidSetting

FAILED, ASKED_WRONGLY, INTERRUPTED = 1, 2, 130

app = typer.Typer(name="millpond", add_completion=False, rich_markup_mode="rich")
app.command()(up)
app.add_typer(cluster)


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
        return app(arguments or ["--help"], prog_name="millpond", standalone_mode=False) or 0
    except TyperException as error:
        return _refuse(f"{error.format_message().rstrip('.')}; see millpond --help", ASKED_WRONGLY)
    except InvalidSetting as error:
        return _refuse(str(error), ASKED_WRONGLY)
    except CannotStart as error:
        return _refuse(str(error), FAILED)
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED


def _refuse(message: str, code: int) -> int:
    typer.echo(f"millpond: {' '.join(message.split())}", err=True)
    return code


if __name__ == "__main__":
    main()
