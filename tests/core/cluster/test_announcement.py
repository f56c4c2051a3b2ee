"""Datagrams of this cluster are read back as they were; all others are ignored for a reason, whatever they are."""

from hypothesis import given
from hypothesis import strategies as st

from millpond.core.cluster.announcement import (
    ANNOUNCEMENT_BYTES_MAX,
    NAME_BYTES_MAX,
    Announcement,
    Ignored,
    read_announcement,
)

SECRET = b"only brokers know this one"
HERE = Announcement(cluster_id="shop", node_id=7, host="10.0.0.7", port=9092)
NAMES = st.text(max_size=NAME_BYTES_MAX).filter(lambda name: len(name.encode()) <= NAME_BYTES_MAX)


def read(datagram: bytes) -> Announcement | Ignored:
    return read_announcement(datagram, cluster_id="shop", secret=SECRET)


def test_the_bytes_are_those_that_other_versions_know() -> None:
    assert HERE.to_bytes(SECRET).hex() == (
        "6d706e6401"
        "47d341bcb6868e203079c87ddaa3935cb1bcdb11bb9d51d8f06a85f86b55bc17"
        "0000000723840473686f700831302e302e302e37"
    )


@given(NAMES, NAMES, st.integers(0, 2**31 - 1), st.integers(0, 65_535))
def test_what_was_said_is_read(cluster_id: str, host: str, node_id: int, port: int) -> None:
    said = Announcement(cluster_id=cluster_id, node_id=node_id, host=host, port=port)
    datagram = said.to_bytes(SECRET)
    assert len(datagram) <= ANNOUNCEMENT_BYTES_MAX
    assert read_announcement(datagram, cluster_id=cluster_id, secret=SECRET) == said


def test_others_are_told_apart() -> None:
    other = Announcement(cluster_id="mill", node_id=7, host="10.0.0.7", port=9092)
    assert read(other.to_bytes(SECRET)) is Ignored.OTHER_CLUSTER
    assert read(HERE.to_bytes(b"quite another secret than that")) is Ignored.OTHER_SECRET


@given(st.binary(max_size=ANNOUNCEMENT_BYTES_MAX + 10))
def test_junk_is_ignored(datagram: bytes) -> None:
    assert isinstance(read(datagram), Ignored)
    assert isinstance(read(b"mpnd\x01" + datagram), Ignored)


@given(st.data())
def test_no_bit_can_be_changed_and_nothing_cut_or_added(data: st.DataObject) -> None:
    datagram = bytearray(HERE.to_bytes(SECRET))
    at = data.draw(st.integers(0, len(datagram) - 1))
    assert read(bytes(datagram[:at])) is Ignored.JUNK
    assert read(bytes(datagram) + bytes([at])) is Ignored.JUNK
    datagram[at] ^= 1 << data.draw(st.integers(0, 7))
    assert isinstance(read(bytes(datagram)), Ignored)
