"""`millpond pipeline` without Spark: metrics are sent, and what cannot be done is said in a line."""

from pathlib import Path

import pytest
from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from millpond.app.refusals import CannotStart
from millpond.cli.pipeline_run import said_plainly
from millpond.client.blocking import Admin
from millpond.testing.broker import InProcessBroker
from tests.cli.calling import Command


def test_metrics_are_sent_to_a_topic_of_their_own(millpond: Command, broker: InProcessBroker) -> None:
    assert millpond.ok("pipeline", "generate", "--messages", "2500") == "2500 metrics to metrics.inbound\n"
    with Admin(broker.bootstrap) as admin:
        topic = admin.describe_topic("metrics.inbound")
    assert len(topic.partitions) == 4


def test_what_cannot_be_done_is_said_in_a_line(millpond: Command, tmp_path: Path) -> None:
    for arguments, text in (
        (("generate", "--faults", "0.5,0.6"), "three shares of 1"),
        (("show", "--folder", str(tmp_path)), "there is no table in"),
        (("run", "orders"), "there is no pipeline 'orders'; there is one: metrics"),
        (("run", "metrics", "--close-windows"), "give --once too"),
        (("run", "metrics", "--conf", "fast"), "--conf is 'fast'; allowed is NAME=VALUE"),
        (("vacuum", "--keep", "soon"), "--keep is 'soon'"),
        (("backfill", "--from", "2026-11-16T10:30Z", "--to", "2026-11-16T12:00Z"), "one whole hour (UTC) to another"),
        (("backfill", "--from", "0", "--to", "3600000", "--folder", str(tmp_path)), "there is no table in"),
    ):
        code, out, err = millpond("pipeline", *arguments)
        assert (code in (2, 5), out) == (True, "")
        assert text in err
        assert len(err.splitlines()) == 1


def test_a_broker_or_a_topic_that_is_not_there_is_said_before_anything_is_written(
    millpond: Command, tmp_path: Path
) -> None:
    """Also before Spark starts: with it, this test would take a minute."""
    folder = tmp_path / "tables"
    run = ("pipeline", "run", "metrics", "--once", "--folder", str(folder))
    with InProcessBroker() as empty:
        for bootstrap, code, text in (
            ("127.0.0.1:1", 4, "no broker answers at 127.0.0.1:1 (Connection refused); start one with"),
            (empty.bootstrap, 3, "topic metrics.inbound: there is no such topic; create it, or correct the name"),
        ):
            ended, out, err = millpond(*run, "--bootstrap", bootstrap)
            assert (ended, out) == (code, "")
            assert text in err
            assert len(err.splitlines()) == 1
    assert not folder.exists()


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ConnectionRefusedError("[Errno 111] Connection refused"), "Spark's Java process has ended"),
        (Py4JNetworkError("Answer from Java side is empty"), "Spark's Java process has ended"),
        (
            PySparkException("[STREAM_FAILED] a page\nmillpond.model.errors.InvalidRecord: what to do\n\tat java.lang"),
            "what to do",
        ),
        (PySparkException("[STREAM_FAILED] Malformed log file\n\tat java.lang"), "Malformed log file"),
    ],
)
def test_a_page_of_spark_is_a_sentence(error: Exception, text: str, tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match=text) as caught, said_plainly(tmp_path / "spark.log"):
        raise error
    assert "\n" not in str(caught.value)
    assert "spark.log" in str(caught.value)


def test_a_table_whose_log_is_damaged_is_named(millpond: Command, tmp_path: Path) -> None:
    for name in ("facts", "rollups"):
        log = tmp_path / name / "_delta_log"
        log.mkdir(parents=True)
        (log / f"{0:020}.json").write_text("half of a li")
    code, out, err = millpond("pipeline", "show", "--folder", str(tmp_path))
    assert (code, out) == (2, "")
    assert f"{0:020}.json is damaged: it is no commit of a table" in err
