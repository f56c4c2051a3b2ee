"""`millpond doctor`: whether this machine is fit for a broker, and what to do where it is not.

millpond doctor --data-dir data
"""

import os
from typing import Annotated

import typer
from typer import Option

from millpond.cli.exit_codes import FAILED
from millpond.cli.options import Output, Shown, examples
from millpond.cli.showing import Section, show

Text = str | None
DOCTOR_EXAMPLES = examples(
    "millpond doctor", "millpond doctor --data-dir data --kafka 127.0.0.1:9192", "millpond doctor --output json"
)


def doctor(
    config: Annotated[Text, Option(help="A TOML file with a broker's settings.", metavar="FILE")] = None,
    data_dir: Annotated[
        Text, Option(help="Where the data would be.  [dim]./millpond-data[/dim]", metavar="DIR")
    ] = None,
    kafka: Annotated[
        Text, Option(help="Where Kafka clients would connect.  [dim]127.0.0.1:9092[/dim]", metavar="HOST:PORT")
    ] = None,
    http: Annotated[
        Text, Option(help="Where HTTP would be, or off.  [dim]127.0.0.1:8080[/dim]", metavar="HOST:PORT|off")
    ] = None,
    output: Shown = Output.TABLE,
) -> None:
    """Look at what a broker needs of this machine: ports, disk, limits, memory, clock. Says what to do.

    Settings come from where millpond up has them: command line, environment, file. Nothing is left behind. The exit
    code is 1 where something would keep a broker from working; warnings do not count.
    """
    from millpond.app.settings import load  # noqa: PLC0415
    from millpond.cli.examination import examine  # noqa: PLC0415

    given = {"data-dir": data_dir, "kafka": kafka, "http": http}
    flags = {name: text for name, text in given.items() if text is not None}
    # Where it may listen is asked when it starts; whether it can is asked here.
    settings = load(flags=flags | {"insecure": "true"}, sets=(), environ=os.environ, config=config)
    rows: list[dict[str, object]] = [each.document() for each in examine(settings)]
    failed = sum(row["state"] == "fail" for row in rows)
    warned = sum(row["state"] == "warn" for row in rows)
    sentence = f"{failed} to be mended, {warned} to be looked at" if failed or warned else "all is well"
    document = {"healthy": not failed, "checks": rows}
    show(document, output, Section(rows, ("check", "state", "found", "advice")), sentence)
    if failed:
        raise typer.Exit(FAILED)
