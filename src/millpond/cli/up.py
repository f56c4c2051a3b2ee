"""`millpond up`: one broker, in the foreground, until it is told to stop."""

import os
from typing import Annotated

from typer import Option

from millpond.app.settings import load

Text = str | None


def up(
    config: Annotated[Text, Option(help="A TOML file with settings; see below.", metavar="FILE")] = None,
    data_dir: Annotated[
        Text, Option(help="Where the data is kept; made if it is not there.  [dim]./millpond-data[/dim]", metavar="DIR")
    ] = None,
    kafka: Annotated[
        Text,
        Option(
            help="Where Kafka clients connect; port 0 takes a free one.  [dim]127.0.0.1:9092[/dim]", metavar="HOST:PORT"
        ),
    ] = None,
    node_id: Annotated[Text, Option(help="This broker's number in its cluster.  [dim]1[/dim]", metavar="N")] = None,
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

    Every setting can also come from the environment ([bold]MILLPOND_DATA_DIR[/bold], [bold]MILLPOND_KAFKA[/bold],
    [bold]MILLPOND_SET_NUM_PARTITIONS[/bold] …) or from the file ([bold]data-dir = "d"[/bold], and below
    [bold]\\[set][/bold] lines such as [bold]num.partitions = 3[/bold]). The command line wins over the environment,
    and that over the file.
    """
    given = {"data-dir": data_dir, "kafka": kafka, "node-id": node_id, "log-format": log_format}
    flags = {name: text for name, text in given.items() if text is not None}
    if insecure:
        flags["insecure"] = "true"
    settings = load(flags=flags, sets=sets or [], environ=os.environ, config=config)
    from millpond.app.process import run  # noqa: PLC0415: a broker is loaded only when one is started

    run(settings)
