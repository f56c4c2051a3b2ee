"""`millpond pipeline`: the metrics pipeline on Spark, and metrics to try it with.

millpond pipeline generate --messages 100000
millpond pipeline run metrics --once --close-windows
millpond pipeline show
"""

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from millpond.cli.options import HERE, Bootstrap, Output, Shown, examples
from millpond.cli.showing import Section, show, write
from millpond.model.errors import InvalidSetting

pipeline = typer.Typer(
    name="pipeline", help="Metrics from a topic to tables, on Spark; needs millpond\\[spark].", no_args_is_help=True
)

Folder = Annotated[Path, Option("--folder", help="Where tables and the checkpoint are.", metavar="DIR")]
Lateness = Annotated[
    int, Option(help="A metric that comes later than this counts in no roll-up.", metavar="SECONDS", min=0)
]
Master = Annotated[str, Option(help="Where Spark runs: local\\[*], spark://HOST:PORT, ...", metavar="MASTER")]
HERE_FOLDER = Path("millpond-metrics")
TOTALS = ("ingested", "dead", "duplicates", "facts", "late")


@pipeline.command(
    epilog=examples(
        "millpond pipeline run metrics",
        "millpond pipeline run metrics --once --close-windows",
        "millpond pipeline run metrics --master spark://10.0.0.1:7077 --folder /shared/metrics",
    )
)
def run(
    name: Annotated[str, Argument(help="Which pipeline; there is one: metrics.", metavar="NAME")] = "metrics",
    folder: Folder = HERE_FOLDER,
    master: Master = "local[*]",
    every: Annotated[float, Option(help="Between micro-batches.", metavar="SECONDS", min=0)] = 5.0,
    once: Annotated[bool, Option("--once", help="Deal with what is there, and end.")] = False,
    close_windows: Annotated[
        bool, Option("--close-windows", help="With --once: roll up the last windows as well; what comes later is late.")
    ] = False,
    lateness: Lateness = 60,
    max_offsets: Annotated[int, Option(help="At most so many in a micro-batch.", metavar="N", min=1)] = 500_000,
    metrics_port: Annotated[
        int | None, Option(help="Serve figures for Prometheus here, on 127.0.0.1.", metavar="PORT")
    ] = None,
    bootstrap: Bootstrap = HERE,
) -> None:
    """Read metrics.inbound; keep facts and roll-ups as tables, publish roll-ups and dead letters, each exactly once.

    It goes on until it is stopped, ends the micro-batch it is in, and goes on from there the next time.
    """
    from millpond.cli.pipeline_run import RunPlan, run_metrics  # noqa: PLC0415

    if name != "metrics":
        raise InvalidSetting(f"there is no pipeline {name!r}; there is one: metrics")
    if close_windows and not once:
        raise InvalidSetting("--close-windows is of a run that ends; give --once too")
    plan = RunPlan(
        folder=folder.absolute(),
        master=master,
        every_seconds=None if once else every,
        close_windows=close_windows,
        lateness_seconds=lateness,
        offsets_max=max_offsets,
        metrics_port=metrics_port,
    )
    run_metrics(bootstrap, plan)


@pipeline.command(
    epilog=examples(
        "millpond pipeline generate --messages 100000",
        "millpond pipeline generate --messages 60000 --rate 1000",
        "millpond pipeline generate --faults 0,0,0",
    )
)
def generate(
    messages: Annotated[int, Option(help="How many.", metavar="N", min=1)] = 100_000,
    rate: Annotated[
        int | None, Option(help="So many a second, as time goes by.  [dim]all at once[/dim]", metavar="N", min=1)
    ] = None,
    clients: Annotated[int, Option(help="From so many.", metavar="N", min=1)] = 50,
    faults: Annotated[
        str, Option(help="Shares that are sent twice, late and malformed.", metavar="TWICE,LATE,MALFORMED")
    ] = "0.05,0.02,0.01",
    seed: Annotated[int, Option(help="The same seed, the same metrics.", metavar="N")] = 0,
    topic: Annotated[str, Option(help="Where they go; made with 4 partitions if it is not there.")] = "metrics.inbound",
    bootstrap: Bootstrap = HERE,
) -> None:
    """Send metrics as many clients would: some of them twice, late or malformed.

    All at once, they are stamped as if they had come at 1000 a second, up to now.
    """
    from millpond.cli.pipeline_generate import GeneratePlan, generate_metrics, parse_faults  # noqa: PLC0415

    plan = GeneratePlan(
        messages=messages, rate=rate, clients=clients, faults=parse_faults(faults), seed=seed, topic=topic
    )
    sent = generate_metrics(bootstrap, plan)
    write(f"{sent} metrics to {topic}")


@pipeline.command("show", epilog=examples("millpond pipeline show", "millpond pipeline show --output json"))
def show_tables(folder: Folder = HERE_FOLDER, output: Shown = Output.TABLE) -> None:
    """What became of all messages so far, and what is in the tables; without Spark."""
    from millpond.cli.pipeline_run import summary  # noqa: PLC0415

    document = summary(folder.absolute())
    show(
        document,
        output,
        Section([document["messages"]], TOTALS, "messages"),
        Section(document["tables"], ("table", "rows", "files", "bytes", "commits"), "tables"),
    )


@pipeline.command(epilog=examples("millpond pipeline compact"))
def compact(folder: Folder = HERE_FOLDER, master: Master = "local[*]") -> None:
    """Write the small files of each table's partition as one; what was read before stays readable."""
    from millpond.cli.pipeline_run import compact_tables  # noqa: PLC0415

    for name, before, after in compact_tables(folder.absolute(), master):
        write(f"{name}: {before} files, now {after}")


@pipeline.command(epilog=examples("millpond pipeline demo"))
def demo(
    messages: Annotated[int, Option(help="How many metrics.", metavar="N", min=1000, max=10_000_000)] = 200_000,
    folder: Annotated[
        Path | None, Option(help="Keep all of it here.  [dim]nowhere, but for the plot[/dim]", metavar="DIR")
    ] = None,
) -> None:
    """A broker, metrics, the pipeline, and what came of it; it ends by itself, and its exit code tells."""
    from millpond.cli.pipeline_demo import run_demo  # noqa: PLC0415

    run_demo(messages, folder)
