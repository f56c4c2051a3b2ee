"""What a classic consumer's metadata says it subscribes to: the one part of it that a coordinator may want to know.

    int16 version, int32 count, then that many topics: int16 length, text; whatever follows is the assignor's

Pure; used by `classic_members.py`. Metadata that cannot be read is the leader's concern, not an error here.
"""

from millpond.core.groups.fields import FieldReader, FieldWriter
from millpond.model.errors import InvalidRecord

CONSUMER = "consumer"
"""The protocol type whose metadata reads like this."""


def subscribed_topics(metadata: bytes) -> frozenset[str]:
    try:
        reader = FieldReader(metadata)
        reader.int16()
        return frozenset(reader.text() for _ in range(reader.count()))
    except InvalidRecord:
        return frozenset()


def subscription(topics: list[str]) -> bytes:
    """The smallest metadata there is, in version 0."""
    writer = FieldWriter().int16(0).int32(len(topics))
    for topic in topics:
        writer.text(topic)
    return writer.data(b"").bytes()
