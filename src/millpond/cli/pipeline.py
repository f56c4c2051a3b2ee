"""`millpond pipeline`: the metrics pipeline on Spark, and metrics to try it with.

millpond pipeline generate --messages 100000
millpond pipeline run metrics --once --close-windows
millpond pipeline show
millpond pipeline backfill --from 2026-11-16T10:00Z --to 2026-11-16T12:00Z
millpond pipeline archive metrics.inbound --folder archive
"""

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from millpond.cli.exit_codes import FAILED
from millpond.cli.options import HERE, Bootstrap, DryRun, Output, Shown, examples, pairs
from millpond.cli.showing import Section, show, write
from millpond.model.errors import InvalidSetting

pipeline = typer.Typer(
    name="pipeline", help="Metrics from a topic to tables, on Spark; needs millpond\\[spark].", no_args_is_help=True
)

Folder = Annotated[
    str, Option("--folder", help="Where tables and the checkpoint are; or s3://bucket/prefix.", metavar="DIR|URI")
]
Checkpoint = Annotated[
    Path | None,
    Option(help="Where the checkpoint is, if tables are in an object store.  [dim]in the folder[/dim]", metavar="DIR"),
]
Lateness = Annotated[
    int, Option(help="A metric that comes later than this counts in no roll-up.", metavar="SECONDS", min=0)
]
Master = Annotated[str, Option(help="Where Spark runs: local\\[*], spark://HOST:PORT, ...", metavar="MASTER")]
Confs = Annotated[
    list[str] | None, Option("--conf", help="A setting of Spark's; may be repeated.", metavar="NAME=VALUE")
]
Fields = Annotated[
    list[str] | None,
    Option("--field", help="A field that metrics have besides; a column of facts from now on.", metavar="NAME=TYPE"),
]
HERE_FOLDER = "millpond-metrics"
TOTALS = ("ingested", "dead", "duplicates", "facts", "late")


@pipeline.command(
    epilog=examples(
        "millpond pipeline run metrics",
        "millpond pipeline run metrics --once --close-windows",
        "millpond pipeline run metrics --master spark://10.0.0.1:7077 --folder /shared/metrics",
        "millpond pipeline run metrics --folder s3://bucket/metrics --checkpoint /var/lib/metrics",
    )
)
def run(
    name: Annotated[str, Argument(help="Which pipeline; there is one: metrics.", metavar="NAME")] = "metrics",
    folder: Folder = HERE_FOLDER,
    checkpoint: Checkpoint = None,
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
    field: Fields = None,
    conf: Confs = None,
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
        folder=place(folder),
        checkpoint=None if checkpoint is None else checkpoint.absolute(),
        master=master,
        every_seconds=None if once else every,
        close_windows=close_windows,
        lateness_seconds=lateness,
        offsets_max=max_offsets,
        metrics_port=metrics_port,
        fields=dict(pairs("--field", field, example="--field region=string")),
    )
    run_metrics(bootstrap, plan, spark_configs(conf))


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

    document = summary(place(folder))
    show(
        document,
        output,
        Section([document["messages"]], TOTALS, "messages"),
        Section(document["tables"], ("table", "rows", "files", "bytes", "commits"), "tables"),
    )


@pipeline.command(epilog=examples("millpond pipeline compact"))
def compact(folder: Folder = HERE_FOLDER, master: Master = "local[*]", conf: Confs = None) -> None:
    """Write the small files of each table's partition as one; what was read before stays readable."""
    from millpond.cli.pipeline_run import compact_tables  # noqa: PLC0415

    for name, before, after in compact_tables(place(folder), master, spark_configs(conf)):
        write(f"{name}: {before} files, now {after}")


@pipeline.command(epilog=examples("millpond pipeline vacuum --dry-run", "millpond pipeline vacuum --keep 2d"))
def vacuum(
    folder: Folder = HERE_FOLDER,
    keep: Annotated[
        str, Option(help="Files that left the table later than this stay, for whoever reads them.", metavar="SPAN")
    ] = "7d",
    dry_run: DryRun = False,
    output: Shown = Output.TABLE,
) -> None:
    """Remove files that are in no table any more: those that were compacted or replaced, and what killed runs left."""
    from millpond.cli.pipeline_jobs import vacuumed  # noqa: PLC0415

    rows = vacuumed(place(folder), keep, dry_run=dry_run)
    title = "would be removed" if dry_run else "removed"
    show({"removed": rows}, output, Section(rows, ("table", "files", "bytes"), title))


@pipeline.command(
    epilog=examples(
        "millpond pipeline backfill --from 2026-11-16T10:00Z --to 2026-11-16T12:00Z",
        "millpond pipeline backfill --from 2026-11-16T00:00Z --to 2026-11-17T00:00Z --lateness 86400",
    )
)
def backfill(
    start: Annotated[str, Option("--from", help="Times of metrics from this whole hour on.", metavar="TIME")],
    end: Annotated[str, Option("--to", help="And before this one.", metavar="TIME")],
    folder: Folder = HERE_FOLDER,
    master: Master = "local[*]",
    lateness: Lateness = 60,
    conf: Confs = None,
    bootstrap: Bootstrap = HERE,
    output: Shown = Output.TABLE,
) -> None:
    """Read a time range of metrics.inbound again, and put its facts and roll-ups in the place of what the tables have.

    Each table changes in one commit. Whatever is outside of the range stays; done twice, it comes to the same.
    """
    from millpond.cli.pipeline_jobs import Where, backfilled  # noqa: PLC0415

    where = Where(master, spark_configs(conf))
    rows = backfilled(bootstrap, place(folder), where, start=start, end=end, lateness_seconds=lateness)
    show({"replaced": rows}, output, Section(rows, ("table", "before", "after"), "rows of the range"))


@pipeline.command(
    epilog=examples(
        "millpond pipeline archive orders --folder archive",
        "millpond pipeline archive orders --folder archive --until 1d",
        "millpond pipeline archive orders --folder archive --verify",
    )
)
def archive(
    topic: Annotated[str, Argument(help="Which topic.", metavar="TOPIC")],
    folder: Annotated[str, Option("--folder", help="Where archives are: a folder, or s3://...", metavar="DIR|URI")],
    until: Annotated[
        str | None, Option(help="Only what is older than this.  [dim]all there is[/dim]", metavar="TIME")
    ] = None,
    verify: Annotated[bool, Option("--verify", help="Compare the archive with the log; write nothing.")] = False,
    messages_per_file: Annotated[int, Option(help="At most so many.", metavar="N", min=1)] = 1_000_000,
    allow_gaps: Annotated[
        bool, Option("--allow-gaps", help="Go on where retention has removed what was not archived yet.")
    ] = False,
    master: Master = "local[*]",
    conf: Confs = None,
    bootstrap: Bootstrap = HERE,
    output: Shown = Output.TABLE,
) -> None:
    """Write what is new in a topic to Parquet, with a manifest of ranges, counts and checksums; or compare the two.

    With --verify the exit code is 1 where something differs. What retention has removed from the log is no difference.
    """
    from millpond.cli.pipeline_jobs import Where, archived, verified  # noqa: PLC0415

    where = Where(master, spark_configs(conf))
    if verify:
        rows = verified(bootstrap, topic, folder, where)
        columns = ("partition", "start", "end", "messages", "state", "found")
        show({"ranges": rows}, output, Section(rows, columns, f"{topic}, in the archive and in the log"))
        if any(row["state"] == "different" for row in rows):
            raise typer.Exit(FAILED)
        return
    rows = archived(bootstrap, topic, folder, where, until=until, per_file=messages_per_file, allow_gaps=allow_gaps)
    columns = ("partition", "start", "end", "messages", "bytes", "file")
    said = Section(rows, columns, f"archived of {topic}") if rows else f"nothing is new in {topic}"
    show({"archived": rows}, output, said)


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


def place(folder: str) -> str:
    return folder if "://" in folder else str(Path(folder).absolute())


def spark_configs(given: list[str] | None) -> dict[str, str]:
    return dict(pairs("--conf", given, example="--conf spark.executor.memory=2g"))
