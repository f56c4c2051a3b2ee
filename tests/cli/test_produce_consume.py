"""`millpond produce` and `millpond consume` against a real broker: what goes in comes out."""

import asyncio
import base64
import json
from pathlib import Path
from typing import Any, cast

import pytest

from millpond.cli.message_formats import writer
from millpond.cli.reading import Job, copy
from millpond.client import Consumer, TopicPartition
from millpond.client.blocking import Consumer as BlockingConsumer
from millpond.model.errors import RequestTimedOut
from millpond.model.ids import Offset
from millpond.testing.broker import InProcessBroker
from tests.cli.calling import Command, read_yaml


def json_lines(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def test_lines_go_in_and_come_out(millpond: Command) -> None:
    said = millpond.ok("produce", "lines", stdin=b"one\ntwo\n\nlast without an end")
    assert said == "4 messages to lines, partition 0, offset 0 to 3\n"
    assert millpond.ok("consume", "lines") == "one\ntwo\n\nlast without an end\n"
    assert millpond.ok("consume", "lines", "--from", "1", "--count", "1") == "two\n"
    assert millpond.ok("consume", "lines", "--from", "-2") == "\nlast without an end\n"
    assert millpond.ok("consume", "lines", "--from", "latest") == ""
    assert millpond.ok("produce", "lines", "--value", "five") == "1 message to lines, partition 0, offset 4\n"
    assert millpond.ok("consume", "lines", "--from", "4", "--follow", "--count", "1") == "five\n"


def test_what_was_sent_is_told_alike_in_every_way(millpond: Command) -> None:
    def told(output: str) -> str:
        return millpond.ok("produce", "told", "--value", "a", "--value", "bc", "--output", output)

    expected = {"partition": 0, "messages": 2, "first_offset": 0, "last_offset": 1}
    assert json.loads(told("json")) == {"topic": "told", "messages": 2, "bytes": 3, "partitions": [expected]}
    expected = {"partition": 0, "messages": 2, "first_offset": 2, "last_offset": 3}
    assert read_yaml(told("yaml")) == {"topic": "told", "messages": 2, "bytes": 3, "partitions": [expected]}
    assert told("table") == "2 messages to told, partition 0, offset 4 to 5\n"


def test_keys_headers_and_a_format_string(millpond: Command, broker: InProcessBroker) -> None:
    broker.create_topic("keyed", partitions=3)
    arguments = ("--key-separator", ": ", "--header", "waiter=Ada", "--header", "waiter=Bob")
    millpond.ok("produce", "keyed", *arguments, stdin=b"table 4: coffee\ntable 4: tea: green\n")
    shape = r"{topic}\t{offset} {key}={value} [{headers}] {{}} \\n"
    assert millpond.ok("consume", "keyed", "--format", shape).splitlines() == [
        "keyed\t0 table 4=coffee [waiter=Ada,waiter=Bob] {} \\n",
        "keyed\t1 table 4=tea: green [waiter=Ada,waiter=Bob] {} \\n",
    ]
    millpond.ok("produce", "keyed", "--key", "table 4", "--value", "cake")
    partitions = millpond.ok("consume", "keyed", "--format", "{partition}").split()
    assert len(partitions) == 3
    assert len(set(partitions)) == 1


def test_json_lines_carry_everything_there_and_back(millpond: Command) -> None:
    binary = base64.b64encode(b"\xff\x00").decode()
    given: list[dict[str, Any]] = [
        {"key": "k", "value": "text", "headers": [{"name": "h", "value": "1"}, {"name": "h", "value": "2"}]},
        {"key_base64": binary, "value_base64": binary, "headers": [{"name": "b", "value_base64": binary}]},
        {"key": "gone", "value": None, "timestamp": 1_700_000_000_000, "offset": 99, "partition": 7, "topic": "other"},
        {"value": {"a": [1, "é"]}},
    ]
    lines = "".join(json.dumps(each) + "\n" for each in given).encode()
    millpond.ok("produce", "json-in", "--format", "json", stdin=lines)
    out = millpond.ok("consume", "json-in", "--format", "json")
    first, second, third, fourth = json_lines(out)
    assert (first["key"], first["value"], first["headers"]) == ("k", "text", given[0]["headers"])
    assert (second["key_base64"], second["value_base64"], second["headers"]) == (binary, binary, given[1]["headers"])
    assert (third["value"], third["timestamp"], third["partition"], third["offset"]) == (None, 1_700_000_000_000, 0, 2)
    assert (fourth["key"], fourth["value"]) == (None, '{"a":[1,"é"]}')
    millpond.ok("produce", "json-copy", "--format", "json", stdin=out.encode())
    copied = json_lines(millpond.ok("consume", "json-copy", "--format", "json"))
    assert [each | {"topic": "json-in"} for each in copied] == [first, second, third, fourth]


def test_bytes_come_out_as_they_went_in(
    broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes], tmp_path: Path
) -> None:
    lines = tmp_path / "lines"
    lines.write_bytes(bytes(each for each in range(256) if each != 10) * 3 + b"\n" + b"\xff" * 100_000 + b"\n")
    millpond = Command(capsysbinary, monkeypatch, broker.bootstrap)  # type: ignore[arg-type]
    assert millpond("produce", "binary", "--file", str(lines), "--compression", "zstd")[0] == 0
    assert cast("object", millpond("consume", "binary")) == (0, lines.read_bytes(), b"")


def test_a_time_to_begin_from(millpond: Command) -> None:
    stamped = [{"value": str(hour), "timestamp": hour * 3_600_000} for hour in range(24)]
    millpond.ok("produce", "hours", "--format", "json", stdin="\n".join(map(json.dumps, stamped)).encode())
    after = [str(hour) for hour in range(22, 24)]
    assert millpond.ok("consume", "hours", "--from-time", "1970-01-01T22:00:00Z").split() == after
    assert millpond.ok("consume", "hours", "--from-time", str(22 * 3_600_000)).split() == after
    assert millpond.ok("consume", "hours", "--from-time", "1h") == ""
    assert millpond.ok("consume", "hours", "--from", "5", "-n", "1", "--format", "{time} {timestamp}") == (
        "1970-01-01T05:00:00.000+00:00 18000000\n"
    )


def test_a_group_goes_on_where_it_was(millpond: Command, broker: InProcessBroker) -> None:
    broker.create_topic("shared", partitions=2)
    millpond.ok("produce", "shared", "--partitioner", "round-robin", stdin=b"".join(b"%d\n" % n for n in range(20)))
    first = millpond.ok("consume", "shared", "--group", "cooks", "--count", "7").split()
    rest = millpond.ok("consume", "shared", "--group", "cooks").split()
    assert (len(first), len(rest)) == (7, 13)
    ends = [each["end"] for each in millpond.document("topics", "describe", "shared")["partitions"]]
    assert ends == [10, 10]  # in turn
    assert {int(each) for each in first + rest} == set(range(20))
    assert millpond.ok("consume", "shared", "--group", "cooks") == ""
    millpond.ok("produce", "shared", "--value", "new")
    assert millpond.ok("consume", "shared", "--group", "cooks", "--follow", "--count", "1") == "new\n"
    assert millpond.ok("consume", "shared", "--group", "late", "--from", "latest") == ""


def test_a_rate_holds_messages_back_but_loses_none(millpond: Command) -> None:
    millpond.ok("produce", "paced", "--rate", "2000", stdin=b"x\n" * 300)
    assert millpond.ok("consume", "paced").count("x\n") == 300


def test_a_line_that_cannot_be_read_is_named_and_those_before_it_are_sent(millpond: Command) -> None:
    code, out, err = millpond("produce", "broken", "--key-separator", ":", stdin=b"a:1\nb:2\nnothing\nc:3\n")
    assert (code, out) == (2, "")
    assert err == (
        "millpond: line 3: 'nothing' has no ':' in it; all lines before it are sent, so correct it and go on from "
        "there\n"
    )
    assert millpond.ok("consume", "broken").split() == ["1", "2"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"{", "is no JSON"),
        (b"[1]", "is no JSON object"),
        (b'{"valu": 1}', "field 'valu' is unknown"),
        (b'{"value_base64": "*"}', "value_base64 is '*', which is no base64"),
        (b'{"value_base64": 7}', "no base64"),
        (b'{"timestamp": "now"}', "timestamp is 'now'"),
        (b'{"headers": {"a": "b"}}', "headers is"),
        (b'{"headers": ["a"]}', "a header is 'a'"),
    ],
)
def test_a_json_line_that_is_wrong_is_refused_with_its_field(millpond: Command, line: bytes, said: str) -> None:
    code, out, err = millpond("produce", "wrong", "--format", "json", stdin=line)
    assert (code, out) == (2, "")
    assert err.startswith("millpond: line 1: ")
    assert said in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "expected", "said"),
    [
        (("consume", "nowhere"), 3, "topic nowhere: there is no such topic or partition; create it first"),
        (("consume", "there", "--count", "-1"), 2, "--count is '-1'; allowed is a whole number from 1 on"),
        (("produce", "no name", "--value", "x"), 2, "no name: this is no name for a topic; allowed are 1 to 249 of"),
        (("produce", "there", "--rate", "0", "--value", "x"), 2, "--rate is '0'; allowed is a number from 0.001 on"),
        (("produce", "nowhere", "--no-create", "--value", "x"), 3, "nowhere"),
        (("consume", "there", "--partition", "4"), 2, "--partition is 4; topic there has 0 to 1"),
        (("consume", "there", "--from", "first"), 2, "--from is 'first'"),
        (("consume", "there", "--from", "9"), 2, "no such offset yet"),
        (("consume", "there", "--from-time", "soon"), 2, "--from-time is 'soon'; allowed is a date"),
        (("consume", "there", "--from", "1", "--from-time", "1h"), 2, "leave one of them out"),
        (("consume", "there", "--group", "g", "--from", "3"), 2, "millpond groups reset"),
        (("consume", "there", "--format", "xml"), 2, "--format is 'xml'"),
        (("consume", "there", "--format", "{size}"), 2, "there is no field {size}"),
        (("consume", "there", "--format", "{value"), 2, "--format is '{value'"),
        (("consume", "there", "--format", "{value.__class__}"), 2, "there is no field"),
        (("produce", "there", "--partition", "4", "--value", "x"), 2, "there is no 4"),
        (("produce", "there", "--partitioner", "nobody's", "--value", "x"), 2, "no installed package offers it"),
        (("produce", "there", "--file", "no-such-file"), 2, "--file is 'no-such-file', which cannot be read"),
        (("produce", "there", "--header", "waiter", "--value", "x"), 2, "--header is 'waiter'"),
        (("produce", "there", "--key", "a", "--key-separator", ":"), 2, "leave one of them out"),
    ],
)
def test_what_is_asked_wrongly_is_refused_in_one_line(
    millpond: Command, arguments: tuple[str, ...], expected: int, said: str
) -> None:
    millpond("topics", "create", "there", "--partitions", "2", "--if-not-exists")
    code, out, err = millpond(*arguments)
    assert (code, out) == (expected, "")
    assert err.startswith("millpond: ")
    assert said in err
    assert err.count("\n") == 1


def test_a_topic_whose_end_does_not_come_is_not_waited_for_for_ever(millpond: Command) -> None:
    millpond.ok("produce", "short", stdin=b"one\ntwo\n")
    at = TopicPartition("short", 0)
    job = Job(
        topic="short", start="earliest", group=None, partitions=None, follow=False, count=None, write=writer("value")
    )

    async def scenario() -> None:
        async with Consumer(millpond.bootstrap) as consumer:
            await consumer.assign(at)
            await copy(consumer, job, {at: Offset(5)}, patience=0.2)

    with pytest.raises(RequestTimedOut, match=r"nothing came for 0\.2 s, and its end is not reached"):
        asyncio.run(scenario())


def test_members_who_have_every_partition_are_not_waited_for_for_ever(millpond: Command) -> None:
    millpond.ok("produce", "taken", "--value", "x")
    with BlockingConsumer(millpond.bootstrap, topics=["taken"], group="full") as member:
        assert len(member.poll(1, timeout=30)) == 1
        code, out, err = millpond("consume", "taken", "--group", "full", "--timeout", "2")
    assert (code, out) == (0, "")
    assert err == "millpond: group full has other members, and they have every partition of taken\n"


def test_nobody_there_is_told_apart_from_everything_else(millpond: Command) -> None:
    code, out, err = millpond("topics", "list", "--bootstrap", "127.0.0.1:1", "--timeout", "0.2")
    assert (code, out) == (4, "")
    assert err.startswith("millpond: no broker answers at 127.0.0.1:1")


def test_another_port_of_the_broker_is_told_apart(millpond: Command) -> None:
    with InProcessBroker(http=True) as broker:
        door = f"127.0.0.1:{broker.broker.http_port}"
        code, _, err = millpond("topics", "list", "--bootstrap", door, "--timeout", "1")
        assert (code, "this is not its port for Kafka's protocol" in err) == (4, True), err
        code, _, err = millpond("queue", "send", "jobs", "x", "--http", broker.bootstrap, "--timeout", "1")
        assert (code, "gave no answer of HTTP" in err) == (4, True), err
