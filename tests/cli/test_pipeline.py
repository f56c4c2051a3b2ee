"""`millpond pipeline` without Spark: metrics are sent, and what cannot be done is said in a line."""

from pathlib import Path

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
