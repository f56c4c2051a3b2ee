"""Commands as bytes: the bytes of every kind are kept here for ever, and nothing else is read."""

import json
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.core.metadata.commands import (
    AddPartitions,
    AllocateProducerIds,
    BeginShutdown,
    ChangePartition,
    Command,
    CreateTopic,
    DeleteTopic,
    Endpoint,
    FenceBroker,
    Movement,
    RegisterBroker,
    SetBrokerConfigs,
    SetGroupConfigs,
    SetTopicConfigs,
    UnregisterBroker,
)
from millpond.core.metadata.elections import register_broker
from millpond.core.metadata.encoding import COMMAND_BYTES_MAX, decode, encode
from millpond.core.metadata.image import EMPTY, apply_all
from millpond.model.errors import UnreadableCommand
from millpond.model.ids import LeaderEpoch

ID = bytes(range(16))
HEX = b"000102030405060708090a0b0c0d0e0f"

# Added to, never changed: these bytes are on somebody's disk.
GOLDEN: list[tuple[Command, bytes]] = [
    (
        RegisterBroker(broker=1, epoch=3, endpoints=(Endpoint("TLS", "mühle", 9092),), rack="a"),
        b'{"broker":1,"endpoints":[["TLS","m\\u00fchle",9092]],"epoch":3,"kind":"register-broker","rack":"a","version":1}',
    ),
    (
        RegisterBroker(broker=2, epoch=0, endpoints=(Endpoint("SSL", "::1", 0),)),
        b'{"broker":2,"endpoints":[["SSL","::1",0]],"epoch":0,"kind":"register-broker","rack":null,"version":1}',
    ),
    (FenceBroker(broker=1), b'{"broker":1,"kind":"fence-broker","version":1}'),
    (
        CreateTopic(name="orders", topic_id=ID, partitions=((1, 2), (2, 1)), configs=(("retention.ms", "1000"),)),
        b'{"configs":{"retention.ms":"1000"},"kind":"create-topic","name":"orders","partitions":[[1,2],[2,1]],'
        b'"topic_id":"' + HEX + b'","version":1}',
    ),
    (DeleteTopic(topic_id=ID), b'{"kind":"delete-topic","topic_id":"' + HEX + b'","version":1}'),
    (
        AddPartitions(topic_id=ID, partitions=((3,),)),
        b'{"kind":"add-partitions","partitions":[[3]],"topic_id":"' + HEX + b'","version":1}',
    ),
    (
        ChangePartition(topic_id=ID, partition=4, leader=-1, leader_epoch=LeaderEpoch(5), isr=(1,)),
        b'{"isr":[1],"kind":"change-partition","leader":-1,"leader_epoch":5,"partition":4,'
        b'"topic_id":"' + HEX + b'","version":1}',
    ),
    (
        SetTopicConfigs(topic_id=ID, values=(("a", "1"), ("b", "")), removed=("c",)),
        b'{"kind":"set-topic-configs","removed":["c"],"topic_id":"' + HEX + b'","values":{"a":"1","b":""},"version":1}',
    ),
    (
        SetBrokerConfigs(broker=-1, values=(("log.retention.ms", "5"),)),
        b'{"broker":-1,"kind":"set-broker-configs","removed":[],"values":{"log.retention.ms":"5"},"version":1}',
    ),
    (AllocateProducerIds(end=1000), b'{"end":1000,"kind":"allocate-producer-ids","version":1}'),
    (
        RegisterBroker(broker=1, epoch=3, endpoints=(Endpoint("TLS", "h", 9092),), rack=None, directory_id=ID),
        b'{"broker":1,"directory_id":"' + HEX + b'","endpoints":[["TLS","h",9092]],"epoch":3,"kind":"register-broker",'
        b'"rack":null,"version":2}',
    ),
    (
        RegisterBroker(broker=1, epoch=3, endpoints=(Endpoint("P", "h", 1),), rack=None, directory_id=ID, life=ID),
        b'{"broker":1,"directory_id":"' + HEX + b'","endpoints":[["P","h",1]],"epoch":3,"kind":"register-broker",'
        b'"life":"' + HEX + b'","rack":null,"version":3}',
    ),
    (BeginShutdown(broker=3), b'{"broker":3,"kind":"begin-shutdown","version":1}'),
    (UnregisterBroker(broker=3), b'{"broker":3,"kind":"unregister-broker","version":1}'),
    (
        SetGroupConfigs(group="mühle", values=(("a", "1"),), removed=("b",)),
        b'{"group":"m\\u00fchle","kind":"set-group-configs","removed":["b"],"values":{"a":"1"},"version":1}',
    ),
    (
        ChangePartition(
            topic_id=ID, partition=4, leader=-1, leader_epoch=LeaderEpoch(5), isr=(), elr=(1, 2), partition_epoch=7
        ),
        b'{"elr":[1,2],"isr":[],"kind":"change-partition","leader":-1,"leader_epoch":5,"movement":null,"partition":4,'
        b'"partition_epoch":7,"topic_id":"' + HEX + b'","version":2}',
    ),
    (
        ChangePartition(
            topic_id=ID,
            partition=4,
            leader=1,
            leader_epoch=LeaderEpoch(5),
            isr=(1,),
            partition_epoch=7,
            movement=Movement((3, 1, 2), adding=(3,), removing=(2,)),
        ),
        b'{"elr":[],"isr":[1],"kind":"change-partition","leader":1,"leader_epoch":5,"movement":[[3,1,2],[3],[2]],'
        b'"partition":4,"partition_epoch":7,"topic_id":"' + HEX + b'","version":2}',
    ),
]


@pytest.mark.parametrize(("command", "content"), GOLDEN)
def test_what_was_written_is_read_for_ever(command: Command, content: bytes) -> None:
    assert decode(content) == command
    assert decode(memoryview(content)) == command


@pytest.mark.parametrize(("command", "content"), GOLDEN)
def test_what_is_written_today_is_what_older_versions_read(command: Command, content: bytes) -> None:
    assert encode(command) == content


def test_every_kind_of_command_has_its_bytes_here() -> None:
    assert {type(command) for command, _ in GOLDEN} == set(get_args(Command))


@pytest.mark.parametrize(("_command", "content"), GOLDEN)
def test_a_field_missing_or_one_too_many_is_refused(_command: Command, content: bytes) -> None:
    document = json.loads(content)
    for name in document:
        short = {key: value for key, value in document.items() if key != name}
        with pytest.raises(UnreadableCommand):
            decode(json.dumps(short).encode())
    with pytest.raises(UnreadableCommand, match="surplus"):
        decode(json.dumps({**document, "surplus": 1}).encode())


@pytest.mark.parametrize(("_command", "content"), GOLDEN)
def test_a_field_of_another_type_is_refused(_command: Command, content: bytes) -> None:
    document = json.loads(content)
    for name in document:
        wrongs: tuple[object, ...] = (True, 1.5, -7, {"x": 1}, [[]], [["a", "b"]], "x" * 5000, 2**63)
        for wrong in wrongs:
            with pytest.raises(UnreadableCommand):
                decode(json.dumps({**document, name: wrong}).encode())


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b'{"kind":"dissolve-cluster","version":1}', "'dissolve-cluster', version 1, is not known"),
        (b'{"kind":"delete-topic","topic_id":"' + HEX + b'","version":2}', "version 2, is not known"),
        (b'{"kind":"delete-topic","topic_id":"' + HEX[:-2] + b'","version":1}', "not 16 bytes in hex"),
        (b'{"kind":"delete-topic","topic_id":"' + b"x" * 32 + b'","version":1}', "not 16 bytes in hex"),
        (b"[]", "no JSON object"),
        (b"", "no JSON"),
        (b"\xff\xff", "no JSON"),
        (b"[" * 200_000, "no JSON"),
        (b" " * (COMMAND_BYTES_MAX + 1), "at most"),
    ],
)
def test_bytes_that_are_no_command_are_refused_and_say_why(content: bytes, says: str) -> None:
    with pytest.raises(UnreadableCommand, match=says):
        decode(content)


@given(st.binary(max_size=200) | st.sampled_from([content for _, content in GOLDEN]), st.data())
def test_damaged_bytes_are_a_command_or_refused_and_nothing_else(content: bytes, data: st.DataObject) -> None:
    damaged = bytearray(content)
    for _ in range(data.draw(st.integers(0, 3)) if damaged else 0):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        command = decode(bytes(damaged))
    except UnreadableCommand:
        return
    assert decode(encode(command)) == command


def test_a_log_from_before_replication_still_opens() -> None:
    """What was written then, applied: partition epochs count on, nobody is eligible, no directory is known."""
    log = [
        b'{"broker":1,"endpoints":[["P","h",1]],"epoch":0,"kind":"register-broker","rack":null,"version":1}',
        b'{"configs":{},"kind":"create-topic","name":"t","partitions":[[1,2]],"topic_id":"' + HEX + b'","version":1}',
        b'{"isr":[1],"kind":"change-partition","leader":-1,"leader_epoch":1,"partition":0,"topic_id":"'
        + HEX
        + b'","version":1}',
    ]
    image = apply_all([decode(content) for content in log], EMPTY)
    partition = image.topics["t"].partitions[0]
    assert (partition.isr, partition.elr, partition.partition_epoch, partition.moving) == ((1,), (), 1, False)
    assert image.brokers[1].directory_id == b""
    commands = register_broker(image, 1, endpoints=(Endpoint("P", "h", 1),), directory_id=ID)
    after = apply_all(commands, image)
    assert after.topics["t"].partitions[0].leader == 1, "a directory heard of for the first time is no lost disk"
    assert after.brokers[1].directory_id == ID


def test_the_largest_command_there_is_fits() -> None:
    replicas = tuple(range(2**31 - 32, 2**31))
    command = CreateTopic(name="t" * 249, topic_id=ID, partitions=(replicas,) * 10_000)
    assert len(encode(command)) <= COMMAND_BYTES_MAX
    assert decode(encode(command)) == command
