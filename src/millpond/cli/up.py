"""`millpond up`: one broker, in the foreground, until it is told to stop."""

import os
from typing import Annotated

from typer import Option

from millpond.app.settings import load

Text = str | None


def up(
    config: Annotated[Text, Option(help="A TOML file with settings; see above.", metavar="FILE")] = None,
    data_dir: Annotated[
        Text, Option(help="Where the data is kept; made if it is not there.  [dim]./millpond-data[/dim]", metavar="DIR")
    ] = None,
    kafka: Annotated[
        Text,
        Option(
            help="Where Kafka clients connect; port 0 takes a free one.  [dim]127.0.0.1:9092[/dim]", metavar="HOST:PORT"
        ),
    ] = None,
    http: Annotated[
        Text,
        Option(help="Where metrics and health are, or off.  [dim]127.0.0.1:8080[/dim]", metavar="HOST:PORT|off"),
    ] = None,
    advertise: Annotated[
        Text, Option(help="Where clients are told to connect, if that is another address.", metavar="HOST:PORT")
    ] = None,
    node_id: Annotated[Text, Option(help="This broker's number in its cluster.  [dim]1[/dim]", metavar="N")] = None,
    offset_store: Annotated[
        Text,
        Option(help="A plugin that keeps committed offsets.  [dim]Millpond's own log[/dim]", metavar="SCHEME:..."),
    ] = None,
    sets: Annotated[
        list[str] | None,
        Option("--set", help="A broker setting by Kafka's name; may be repeated.", metavar="NAME=VALUE"),
    ] = None,
    insecure: Annotated[
        bool,
        Option("--insecure", help="Listen beyond this machine, where everybody may read and delete everything."),
    ] = False,
    log_format: Annotated[
        Text, Option(help="Sentences for people, or JSON lines for machines.  [dim]text[/dim]", metavar="text|json")
    ] = None,
) -> None:
    """Start a broker, and stop it with Ctrl-C.

    Settings come from the command line, else from the environment, else from a TOML file.

    As a variable, --kafka is MILLPOND_KAFKA and --set num.partitions=3 is MILLPOND_SET_NUM_PARTITIONS=3.

    In a file they are kafka = "127.0.0.1:9092" and, below \\[set], num.partitions = 3.
    """
    given = {
        "data-dir": data_dir,
        "kafka": kafka,
        "http": http,
        "advertise": advertise,
        "node-id": node_id,
        "offset-store": offset_store,
        "log-format": log_format,
    }
    flags = {name: text for name, text in given.items() if text is not None}
    if insecure:
        flags["insecure"] = "true"
    settings = load(flags=flags, sets=sets or [], environ=os.environ, config=config)
    # A broker is loaded only when one is started, so that --help and a refusal come at once.
    from millpond.app.process import run  # noqa: PLC0415

    run(settings)
