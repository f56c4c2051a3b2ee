"""Tables in an object store are what tables in a folder are: commits whole and once, rows as they were written."""

import threading
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from millpond.model.errors import InvalidSetting
from millpond.pipeline.backfill import backfill
from millpond.pipeline.generating import Load
from millpond.pipeline.metrics_job import MetricsJob, MetricsSettings
from millpond.pipeline.storage import Objects, below
from millpond.pipeline.table import Table
from millpond.pipeline.time_range import TimeRange
from millpond.testing.broker import InProcessBroker
from tests.pipeline.metrics_model import compare
from tests.pipeline.one_batch import take_in
from tests.pipeline.simulated_s3 import BUCKET, CREDENTIALS, simulated_s3
from tests.pipeline.test_metrics import PARTITIONS, START_MS, send
from tests.pipeline.test_table import SCHEMA, file

pytest.importorskip("obstore", reason="obstore is not there: pip install 'millpond[objects]'")


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with simulated_s3() as address:
        yield f"s3://{BUCKET}/{uuid.uuid4().hex}?endpoint_override={address}&scheme=http"


def table(place: str) -> Table:
    return Table(below(place, "facts"), SCHEMA, partitioned_by="date")


def test_a_number_is_committed_once_whoever_tries(place: str) -> None:
    done: list[tuple[int, int]] = []

    def work(who: int) -> None:
        mine = table(place)
        done.extend(
            (who, number)
            for number in range(5)
            if mine.commit("app", number, added=[file(f"{who}-{number}")], note={"count": number})
        )

    threads = [threading.Thread(target=work, args=(who,)) for who in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(number for _, number in done) == list(range(5))
    state = table(place).state
    assert (state.version, state.note) == (4, {"count": 4})
    assert sorted(state.files) == sorted(file(f"{who}-{number}").path for who, number in done)


def test_a_checkpoint_stands_for_all_commits_before_it(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millpond.pipeline.table.CHECKPOINT_EVERY", 2)
    first = table(place)
    for number in range(5):
        first.commit("a", number, added=[file(f"a{number}")], note={"count": number})
    for version in range(4):
        first.storage.remove(f"_delta_log/{version:020}.json")
    assert table(place).state == first.state


def test_files_are_removed_when_nobody_reads_them_any_more(place: str) -> None:
    current = Table(below(place, "facts"), SCHEMA, partitioned_by="date", wall_ms=lambda: 1 << 50)
    for number in range(120):  # more than a page
        current.storage.replace(file(f"{number:03}").path, b"x")
    current.commit("a", 0, added=[file("007")], note={})
    assert len(current.vacuum(keep_ms=1_000, dry_run=True)) == 119
    assert {each.size for each in current.vacuum(keep_ms=1_000)} == {1}
    assert [each.path for each in current.storage.listed()] == [file("007").path]


def test_what_cannot_be_used_is_refused(place: str) -> None:
    with pytest.raises(InvalidSetting, match="see that the bucket is there"):
        table(place.replace(BUCKET, "nowhere"))
    with pytest.raises(InvalidSetting, match="colour means nothing here"):
        table(f"{place}&colour=blue")
    with pytest.raises(InvalidSetting, match="is no place for tables"):
        Objects("gopher://bucket/facts").prepare()
    with pytest.raises(InvalidSetting, match="--checkpoint DIR"):
        MetricsSettings(bootstrap="", folder=place).checkpoint_folder  # noqa: B018


@pytest.mark.slow
def test_the_pipeline_comes_to_the_same_there(
    spark: SparkSession, broker: InProcessBroker, place: str, tmp_path: Path
) -> None:
    names = [f"{tmp_path.name}.{name}" for name in ("inbound", "dead", "rollup")]
    for name in names:
        broker.create_topic(name, partitions=PARTITIONS, configs={"retention.ms": "-1"})
    settings = MetricsSettings(
        bootstrap=broker.bootstrap,
        folder=place,
        checkpoint=tmp_path / "checkpoint",
        topic=names[0],
        dead_letters=names[1],
        rollups=names[2],
        fields={"region": "string"},
    )
    send(broker, settings.topic, Load(messages=2_000, start_ms=START_MS, per_second=20, clients=5))
    job = MetricsJob(spark, replace(settings, fields={}))
    take_in(spark, job)
    job.close_windows()
    compare(settings)
    again = MetricsJob(spark, settings)
    again.do_batch(spark.createDataFrame([], "value int"), 0)  # it is done already
    hour = START_MS // 3_600_000 * 3_600_000
    facts, _ = backfill(spark, again, TimeRange(hour, hour + 3_600_000))
    assert facts.before == facts.after > 0
    again.facts.compact(spark)
    assert again.facts.read(spark).where("region is null").count() == again.progress().facts
    compare(settings)
