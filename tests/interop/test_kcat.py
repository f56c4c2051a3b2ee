"""kcat, where it is installed: its librdkafka is older than the one of confluent-kafka."""

import shutil
import subprocess

import pytest

from tests.interop.broker_process import BrokerProcess
from tests.interop.confluent import CODECS, new_topic
from tests.interop.facts import FACT_SECONDS_MAX, new_name

KCAT = shutil.which("kcat") or ""
pytestmark = pytest.mark.skipif(not KCAT, reason="kcat is not installed")


def kcat(broker: BrokerProcess, *arguments: str, said: str = "") -> str:
    command = [KCAT, "-b", broker.address, "-q", *arguments]
    ran = subprocess.run(command, input=said, capture_output=True, text=True, timeout=FACT_SECONDS_MAX, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.mark.parametrize("codec", CODECS)
def test_lines_of_each_codec_come_back_as_they_were_sent(broker: BrokerProcess, codec: str) -> None:
    topic = new_topic(broker)
    lines = "".join(f"order {number}\n" for number in range(500))
    kcat(broker, "-P", "-t", topic, "-z", codec, said=lines)
    assert kcat(broker, "-C", "-t", topic, "-o", "beginning", "-e") == lines


def test_a_group_reads_to_the_end(broker: BrokerProcess) -> None:
    topic = new_topic(broker)
    kcat(broker, "-P", "-t", topic, said="a\nb\n")
    assert kcat(broker, "-G", new_name("group"), "-X", "auto.offset.reset=earliest", "-e", topic) == "a\nb\n"
    assert topic in kcat(broker, "-L")
