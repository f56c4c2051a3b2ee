"""kcat, as it is installed or can be fetched: its librdkafka is often years older than the one of confluent-kafka."""

import json
import os
import signal
import subprocess
import threading
import warnings
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.interop.broker_process import BrokerProcess
from tests.interop.confluent import CODECS, new_producer, new_topic
from tests.interop.facts import FACT_SECONDS_MAX, new_name, until
from tests.interop.fetched import kcat_program
from tests.interop.flowing_group import Flow

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it reads its schemas in an old way
    from kafka.admin import KafkaAdminClient

BASE_MS = 1_700_000_000_000


@pytest.fixture(scope="module", autouse=True)
def kcat_on_the_path(request: pytest.FixtureRequest) -> Iterator[None]:
    assert request.config.cache is not None
    directory = Path(kcat_program(request.config.cache)).parent
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{directory}{os.pathsep}{os.environ['PATH']}")
        yield


def kcat(broker: BrokerProcess, *arguments: str, said: str = "") -> str:
    command = ["kcat", "-b", broker.address, "-q", "-X", "fetch.wait.max.ms=50", *arguments]
    ran = subprocess.run(command, input=said, capture_output=True, text=True, timeout=FACT_SECONDS_MAX, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def read_all(broker: BrokerProcess, topic: str, *arguments: str, start: str = "beginning") -> str:
    return kcat(broker, "-C", "-t", topic, "-o", start, "-e", *arguments)


def group_reads(broker: BrokerProcess, group: str, topic: str) -> str:
    return kcat(broker, "-G", group, "-X", "auto.offset.reset=earliest", "-e", topic)


@pytest.mark.parametrize("codec", CODECS)
def test_lines_of_each_codec_come_back_as_they_were_sent(broker: BrokerProcess, codec: str) -> None:
    topic = new_topic(broker)
    lines = "".join(f"order {number} {'x' * 50}\n" for number in range(500))
    kcat(broker, "-P", "-t", topic, "-z", codec, said=lines)
    assert read_all(broker, topic) == lines
    small = _bytes_kept(broker, topic) < len(lines) / 2
    assert small == (codec != "none"), "an old librdkafka sends plain messages where it doubts the broker"


def _bytes_kept(broker: BrokerProcess, topic: str) -> int:
    with closing(KafkaAdminClient(bootstrap_servers=broker.address)) as admin:
        (node,) = admin.describe_log_dirs()
    return sum(
        partition["partition_size"]
        for directory in node["log_dirs"]
        for each in directory["topics"]
        if each["name"] == topic
        for partition in each["partitions"]
    )


def test_keys_headers_and_missing_values_are_kept(broker: BrokerProcess) -> None:
    topic = new_topic(broker)
    kcat(broker, "-P", "-t", topic, "-K:", "-Z", "-H", "trace=1", "-H", "trace=2", said="key:value\ngone:\n:alone\n")
    # %S and %K are lengths; -1 is a missing one
    assert read_all(broker, topic, "-f", "%o %k %K %s %S %h\n").splitlines() == [
        "0 key 3 value 5 trace=1,trace=2",
        "1 gone 4  -1 trace=1,trace=2",
        "2  -1 alone 5 trace=1,trace=2",
    ]


def test_a_message_of_900_kilobytes_passes(broker: BrokerProcess, tmp_path: Path) -> None:
    topic = new_topic(broker)
    large = tmp_path / "large"
    large.write_text("x" * 900_000)
    kcat(broker, "-P", "-t", topic, str(large))
    assert read_all(broker, topic, "-f", "%S\n") == "900000\n"


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_each_level_of_acks_delivers(broker: BrokerProcess, acks: str) -> None:
    topic = new_topic(broker)
    kcat(broker, "-P", "-t", topic, "-X", f"acks={acks}", said="a\nb\n")
    assert read_all(broker, topic) == "a\nb\n"


def test_an_idempotent_producer_keeps_its_order(broker: BrokerProcess) -> None:
    topic = new_topic(broker)
    lines = "".join(f"{number}\n" for number in range(5_000))
    kcat(broker, "-P", "-t", topic, "-X", "enable.idempotence=true", said=lines)
    assert read_all(broker, topic) == lines


def test_offsets_are_found_by_time_and_from_the_end(broker: BrokerProcess) -> None:
    topic = new_topic(broker)
    producer = new_producer(broker)
    for number in range(10):
        producer.produce(topic, b"%d" % number, timestamp=BASE_MS + 1_000 * number)
    assert producer.flush(FACT_SECONDS_MAX) == 0
    assert kcat(broker, "-Q", "-t", f"{topic}:0:{BASE_MS + 2_500}") == f"{topic} [0] offset 3\n"
    assert read_all(broker, topic, start=f"s@{BASE_MS + 7_500}") == "8\n9\n"
    assert read_all(broker, topic, start="-3") == "7\n8\n9\n"
    assert read_all(broker, topic, "-f", "%T\n", start="9") == f"{BASE_MS + 9_000}\n"


def test_the_cluster_is_listed(broker: BrokerProcess) -> None:
    topic = new_topic(broker, partitions=3)
    seen = json.loads(kcat(broker, "-L", "-J", "-t", topic))
    assert [each["name"] for each in seen["brokers"]] == [broker.address]
    (found,) = seen["topics"]
    assert (found["topic"], len(found["partitions"])) == (topic, 3)


def test_a_group_goes_on_where_it_stopped(broker: BrokerProcess) -> None:
    topic, group = new_topic(broker), new_name("group")
    kcat(broker, "-P", "-t", topic, said="a\nb\n")
    assert group_reads(broker, group, topic) == "a\nb\n"
    kcat(broker, "-P", "-t", topic, said="c\n")
    assert group_reads(broker, group, topic) == "c\n"


class KcatMember:
    def __init__(self, broker: BrokerProcess, group: str, topic: str, strategy: str, *more: str) -> None:
        settings = (
            *("-X", f"partition.assignment.strategy={strategy}", "-X", "auto.offset.reset=earliest"),
            *("-X", "heartbeat.interval.ms=200", "-X", "fetch.wait.max.ms=50"),
        )
        command = ["kcat", "-b", broker.address, "-q", "-u", "-G", group, *settings, *more, topic]
        self.read: list[bytes] = []
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self._thread = threading.Thread(target=self._listen, name="kcat-lines")
        self._thread.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.read.append(line.rstrip(b"\n"))

    def leave(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        self.wait_gone()

    def wait_gone(self) -> None:
        try:
            self._process.wait(FACT_SECONDS_MAX)
        finally:
            self._process.kill()
            self._process.wait()
            self._thread.join(FACT_SECONDS_MAX)
            assert self._process.stdout is not None
            self._process.stdout.close()


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_member_comes_and_goes_while_messages_flow(broker: BrokerProcess, strategy: str) -> None:
    """It commits in the background, so some may be read twice; none may be missed.

    The one that goes does so by itself, after 200 messages: told by a signal, kcat drops the message in its hand.
    """
    topic, group = new_topic(broker, partitions=4), new_name("group")
    pause = threading.Event()
    flow = Flow(broker, topic, partitions=4)
    stays = KcatMember(broker, group, topic, strategy)
    try:
        for _ in until(lambda: stays.read, what="the first member reads"):
            pause.wait(0.01)
        goes = KcatMember(broker, group, topic, strategy, "-c", "200")
        goes.wait_gone()
        flow.stop()
        for _ in until(lambda: {*stays.read, *goes.read} >= set(flow.acknowledged), what="everything is read"):
            pause.wait(0.05)
    finally:
        flow.stop()
        stays.leave()
    assert flow.errors == []
    assert len(goes.read) == 200
    assert {*stays.read, *goes.read} == set(flow.acknowledged)
