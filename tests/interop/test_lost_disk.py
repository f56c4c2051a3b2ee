"""A voter that lost its disk is kept from voting with nothing remembered, and comes back as its operator is told."""

import shutil
from pathlib import Path

from tests.cli.broker_process import run
from tests.interop.cluster_processes import ClusterBroker, running_cluster
from tests.interop.facts import until
from tests.interop.histories import PATIENCE_SECONDS
from tests.interop.test_cluster_clients import new_topic
from tests.interop.traffic import Stream, check_log

FORGOTTEN = "broker 3 votes in this cluster, and comes with another data directory than it had"
PRESENT = "node id 3 is taken by a broker with another data directory, which was up a moment ago"


def test_a_voter_that_lost_its_disk_is_refused_until_it_was_demoted_and_then_votes_again(tmp_path: Path) -> None:
    with running_cluster(tmp_path) as cluster:
        topic = new_topic(cluster, partitions=1)
        stream = Stream(cluster, topic, partitions=1)
        try:
            stream.history.wait_more(100)
            lost = cluster.brokers[3]
            lost.kill()
            shutil.rmtree(tmp_path / "3")
            for _ in until(
                lambda: refusals_of(lost) == {FORGOTTEN},
                what="it is taken for two by none",
                seconds_max=PATIENCE_SECONDS,
            ):
                pass
            asked = ("--bootstrap", cluster.brokers[1].address)
            assert run("cluster", "demote", "3", *asked) == (0, "broker 3 does not vote any more\n", "")
            shutil.rmtree(tmp_path / "3")
            lost.peers = ",".join(each for each in lost.peers.split(",") if not each.startswith("3@"))
            lost.start()
            for _ in until(
                lambda: run("cluster", "promote", "3", *asked)[0] == 0, what="it votes", seconds_max=PATIENCE_SECONDS
            ):
                pass
            state = cluster.wait_healthy()
            assert [each.node_id for each in state.quorum.voters] == [1, 2, 3]
            stream.history.wait_more(100)
            stream.finish()
            check_log(cluster, stream.history)
        finally:
            stream.abandon()


def refusals_of(broker: ClusterBroker) -> set[str]:
    """What it was told by others when it was started, and ended by itself."""
    told = len(broker.told)
    broker.launch()
    assert broker.wait_ended() == 2
    said = "".join(str(line["message"]) for line in broker.told[told:])
    del broker.told[told:]  # it is no bug of the broker's
    return {each for each in (FORGOTTEN, PRESENT) if each in said}
