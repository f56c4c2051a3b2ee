"""Bounds that hold everywhere: nothing that a peer names is allocated before it is checked against one of these.

Pure. A limit that a user may want to move is the default of a setting; the others are walls.
"""

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

BATCH_BYTES_MAX = 64 * MIB
"""Largest record batch, as sent; a wall above every `max.message.bytes`."""

INFLATED_BYTES_MAX = 256 * MIB
"""Largest content of one compressed batch; more is a bomb."""

RECORDS_PER_BATCH_MAX = 4_000_000
"""Most records one batch may claim; the claim is also checked against the bytes that are there."""

HEADERS_PER_RECORD_MAX = 10_000

SEGMENT_BYTES_MAX = 2 * GIB - 1
"""Largest segment: positions and relative offsets are kept in 32 bits."""

TOPIC_NAME_CHARS_MAX = 249
"""Kafka's bound: the name and `-` and a partition number still fit one directory entry of 255 bytes."""

PARTITIONS_PER_TOPIC_MAX = 100_000

STATE_DOCUMENT_BYTES_MAX = MIB
"""Largest document that a machine may have kept in `__share_group_state`."""

STATE_BYTES_MAX = 2 * MIB
"""Most that is kept for one key there, its whole document and the changes since: then a whole one has to come."""

STATE_CHANGES_MAX = 1_000
"""Most changes that are kept behind a whole document; machines send a whole one much earlier."""

VISIBILITY_MS_MAX = 12 * 3_600_000
"""Longest lease of a message; the most that `share.record.lock.duration.ms` and `millpond.visibility.max.ms` may be."""

RECEIVE_WAIT_MS_MAX = 60_000
"""How long a request for messages of a queue may wait for the first."""

RECEIVE_MESSAGES_MAX = 1_000
"""Most messages of a queue that one request is answered with."""

RECEIPTS_MAX = 10_000
"""Most messages that one request may settle."""

RETRY_DELAY_MS_MAX = 7 * 24 * 3_600_000
"""Longest wait before the next delivery that who gives a message back may ask for."""
