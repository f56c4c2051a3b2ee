"""The one error tree. A leaf knows what every front door answers, and whether trying again can help.

    MillpondError
    ├── RequestError                the caller's mistake: answered with the value shown, the broker goes on
    │   ├── MalformedBatch          bytes that are no record batch: cut short, lengths that lie
    │   │   └── CorruptBatch        a batch whose checksum does not fit its bytes
    │   ├── UnsupportedMagic        a message format other than v2
    │   ├── UnsupportedCompression  a codec that does not exist
    │   ├── InvalidRecord           a batch that is whole but says something impossible
    │   ├── BatchTooLarge           more bytes, inflated bytes or records than allowed
    │   ├── OffsetOutOfRange        an offset the log does not have
    │   ├── InvalidTopicName        a name that is no topic
    │   ├── InvalidSetting          a setting outside its range
    │   ├── OutOfOrderSequence      an idempotent producer skipped or repeated numbers
    │   ├── DuplicateSequence       an idempotent batch older than those remembered
    │   ├── StaleProducerEpoch      a producer that a newer one has replaced
    │   ├── UnknownTopicOrPartition  a name nobody created, or a partition this broker does not have
    │   ├── FencedLeaderEpoch       asked in an epoch that is over: look up the leader again
    │   ├── UnknownLeaderEpoch      asked in an epoch that is not known here yet
    │   ├── NotLeader               another broker leads the partition, or nobody does: look up the leader again
    │   ├── NotABroker              asked as a broker of this cluster, by somebody who has not proved to be one
    │   ├── OffsetNotAvailable      a new leader does not know yet how far consumers may read: ask again
    │   ├── RequestTimedOut         not done in the time the request gave it; it may yet be
    │   ├── InvalidTimestamp        a record's time further from now than its topic allows
    │   ├── InvalidAcks             a number of acknowledgements that means nothing
    │   ├── MalformedMessage        bytes that are no message of the version they claim
    │   ├── InvalidRequest          a request that contradicts itself, or names one thing twice
    │   ├── UnknownTopicId          an id nobody created, or whose topic is deleted
    │   ├── TopicAlreadyExists      a name that is taken
    │   ├── InvalidPartitions       a number of partitions that cannot be
    │   ├── InvalidReplicationFactor  more replicas than brokers, or none
    │   ├── InvalidReplicaAssignment  replicas placed where they cannot be
    │   ├── PolicyViolation         possible, but not allowed here: internal topics, too much at once
    │   ├── TopicDeletionDisabled   this cluster deletes no topics
    │   ├── ElectionNotNeeded       the leader is already the one asked for
    │   ├── ControllerUnavailable   no majority answered in time: what was asked may be done, or may not
    │   ├── PreferredLeaderNotAvailable  the first replica is not there, or not in sync
    │   ├── EligibleLeadersNotAvailable  no replica is there
    │   ├── NotEnoughReplicas       fewer replicas in sync than the topic wants; nothing was appended
    │   ├── NotEnoughReplicasAfterAppend  the same, noticed when it was appended already: it may yet be kept
    │   ├── InvalidUpdateVersion    a change of a partition that has changed since it was looked at
    │   ├── IneligibleReplica       a replica that may not be in sync: down, going down, or restarted meanwhile
    │   ├── StaleBrokerEpoch        a broker that has registered anew since
    │   ├── BrokerNotRegistered     a broker that nobody knows
    │   ├── NoReassignmentInProgress  nothing that could be cancelled
    │   ├── CoordinatorUnavailable  who looks after the group is not known, moves, or is still reading: ask again
    │   ├── FencedState             a state that a newer writer has loaded since: whoever has it is at work elsewhere
    │   ├── UnknownMember           a member of a group that its coordinator does not know, or no longer
    │   ├── GroupNotEmpty           a group with members, asked for what only an empty one can do
    │   ├── GroupNotFound           a group nobody has heard of
    │   ├── LeaseLost               a message that its consumer does not hold, or no longer
    │   └── MessageNotFound         a delayed message that does not wait: delivered, cancelled, or never there
    ├── StorageError                the machine's mistake: nothing was acknowledged
    │   ├── DiskFull                no space left; the log is as it was and keeps working
    │   ├── TooManyOpenFiles        no new file now; the log is as it was and keeps working
    │   ├── DiskFailed              the disk refused; the log takes no more until it is opened again
    │   ├── LogCorrupted            bytes on disk are not those that were written; never served
    │   ├── Truncated               an append was cut off again before it was kept
    │   ├── LogClosed               the log was closed while, or before, it was asked
    │   ├── UnreadableCommand       bytes of the metadata log that this version cannot read
    │   └── PromisesForgotten       a broker that votes has less of the metadata log than it said it has
    └── ClientError                 what a client meets that no broker told it
        ├── BrokerUnreachable       no answer: nobody listens there, or the connection ended first
        ├── DeliveryTimedOut        not acknowledged in the time there was; it may have been written all the same
        ├── ClientClosed            asked of a client that is closed, or was closed meanwhile
        ├── WrongUse                a call that its object cannot do as it is
        └── RefusedByBroker         an answer whose error has no name in this tree; `code` is its number

Our own bugs are not in the tree: they assert, and stop. `tests/model/test_errors.py` holds this drawing to the code.
"""

from typing import ClassVar, Final

TEXT_CHARS_MAX: Final = 1000


class MillpondError(Exception):
    """Base of all; only its leaves are raised. `str(error)` says which value, what is allowed, and what to do."""

    kafka_code: ClassVar[int]
    http_status: ClassVar[int]
    grpc_code: ClassVar[str]
    retriable: ClassVar[bool]

    def __str__(self) -> str:
        """Short enough for every field it is answered in, however long a name it quotes."""
        text = super().__str__()
        return text if len(text) <= TEXT_CHARS_MAX else f"{text[:TEXT_CHARS_MAX]}…"


class RequestError(MillpondError):
    http_status = 400
    grpc_code = "INVALID_ARGUMENT"
    retriable = False


class MalformedBatch(RequestError):
    kafka_code = 2  # CORRUPT_MESSAGE


class CorruptBatch(MalformedBatch):
    retriable = True  # damaged on the way, most likely; Kafka's clients send it again


class UnsupportedMagic(RequestError):
    kafka_code = 43  # UNSUPPORTED_FOR_MESSAGE_FORMAT


class UnsupportedCompression(RequestError):
    kafka_code = 76  # UNSUPPORTED_COMPRESSION_TYPE


class InvalidRecord(RequestError):
    kafka_code = 87  # INVALID_RECORD
    records: tuple[int, ...] = ()
    """Which of the batch they are, where the others are well."""


class BatchTooLarge(RequestError):
    kafka_code = 10  # MESSAGE_TOO_LARGE
    http_status = 413


class OffsetOutOfRange(RequestError):
    kafka_code = 1  # OFFSET_OUT_OF_RANGE
    http_status = 416
    grpc_code = "OUT_OF_RANGE"


class InvalidTopicName(RequestError):
    kafka_code = 17  # INVALID_TOPIC_EXCEPTION


class InvalidSetting(RequestError):
    kafka_code = 40  # INVALID_CONFIG


class OutOfOrderSequence(RequestError):
    kafka_code = 45  # OUT_OF_ORDER_SEQUENCE_NUMBER
    http_status = 409
    grpc_code = "FAILED_PRECONDITION"


class DuplicateSequence(RequestError):
    kafka_code = 46  # DUPLICATE_SEQUENCE_NUMBER
    http_status = 409
    grpc_code = "ALREADY_EXISTS"


class StaleProducerEpoch(RequestError):
    kafka_code = 47  # INVALID_PRODUCER_EPOCH
    http_status = 409
    grpc_code = "FAILED_PRECONDITION"


class UnknownTopicOrPartition(RequestError):
    kafka_code = 3  # UNKNOWN_TOPIC_OR_PARTITION
    http_status = 404
    grpc_code = "NOT_FOUND"
    retriable = True  # it may be on its way, or elsewhere


class FencedLeaderEpoch(RequestError):
    kafka_code = 74  # FENCED_LEADER_EPOCH
    http_status = 409
    grpc_code = "FAILED_PRECONDITION"
    retriable = True


class UnknownLeaderEpoch(RequestError):
    kafka_code = 75  # UNKNOWN_LEADER_EPOCH
    http_status = 409
    grpc_code = "FAILED_PRECONDITION"
    retriable = True


class NotLeader(RequestError):
    kafka_code = 6  # NOT_LEADER_OR_FOLLOWER
    http_status = 503
    grpc_code = "UNAVAILABLE"
    retriable = True


class NotABroker(RequestError):
    kafka_code = 31  # CLUSTER_AUTHORIZATION_FAILED
    http_status = 403
    grpc_code = "PERMISSION_DENIED"


class OffsetNotAvailable(RequestError):
    kafka_code = 78  # OFFSET_NOT_AVAILABLE
    http_status = 503
    grpc_code = "UNAVAILABLE"
    retriable = True


class RequestTimedOut(RequestError):
    kafka_code = 7  # REQUEST_TIMED_OUT
    http_status = 504
    grpc_code = "DEADLINE_EXCEEDED"
    retriable = True


class InvalidTimestamp(RequestError):
    kafka_code = 32  # INVALID_TIMESTAMP
    records: tuple[int, ...] = ()
    """Which of the batch they are."""


class InvalidAcks(RequestError):
    kafka_code = 21  # INVALID_REQUIRED_ACKS


class MalformedMessage(RequestError):
    kafka_code = 42  # INVALID_REQUEST


class InvalidRequest(RequestError):
    kafka_code = 42  # INVALID_REQUEST


class UnknownTopicId(RequestError):
    kafka_code = 100  # UNKNOWN_TOPIC_ID
    http_status = 404
    grpc_code = "NOT_FOUND"
    retriable = True


class TopicAlreadyExists(RequestError):
    kafka_code = 36  # TOPIC_ALREADY_EXISTS
    http_status = 409
    grpc_code = "ALREADY_EXISTS"


class InvalidPartitions(RequestError):
    kafka_code = 37  # INVALID_PARTITIONS


class InvalidReplicationFactor(RequestError):
    kafka_code = 38  # INVALID_REPLICATION_FACTOR


class InvalidReplicaAssignment(RequestError):
    kafka_code = 39  # INVALID_REPLICA_ASSIGNMENT


class PolicyViolation(RequestError):
    kafka_code = 44  # POLICY_VIOLATION
    http_status = 403
    grpc_code = "FAILED_PRECONDITION"


class TopicDeletionDisabled(RequestError):
    kafka_code = 73  # TOPIC_DELETION_DISABLED
    http_status = 403
    grpc_code = "FAILED_PRECONDITION"


class ElectionNotNeeded(RequestError):
    kafka_code = 84  # ELECTION_NOT_NEEDED
    http_status = 409
    grpc_code = "FAILED_PRECONDITION"


class ControllerUnavailable(RequestError):
    kafka_code = 7  # REQUEST_TIMED_OUT
    http_status = 503
    grpc_code = "UNAVAILABLE"
    retriable = True


class PreferredLeaderNotAvailable(RequestError):
    kafka_code = 80  # PREFERRED_LEADER_NOT_AVAILABLE
    http_status = 503
    grpc_code = "UNAVAILABLE"
    retriable = True


class EligibleLeadersNotAvailable(RequestError):
    kafka_code = 83  # ELIGIBLE_LEADERS_NOT_AVAILABLE
    http_status = 503
    grpc_code = "UNAVAILABLE"
    retriable = True


class NotEnoughReplicas(RequestError):
    kafka_code = 19  # NOT_ENOUGH_REPLICAS
    http_status = 503
    grpc_code = "UNAVAILABLE"
    retriable = True


class NotEnoughReplicasAfterAppend(RequestError):
    kafka_code = 20  # NOT_ENOUGH_REPLICAS_AFTER_APPEND
    http_status = 503
    grpc_code = "UNAVAILABLE"
    retriable = True


class InvalidUpdateVersion(RequestError):
    kafka_code = 95  # INVALID_UPDATE_VERSION
    http_status = 409
    grpc_code = "ABORTED"


class IneligibleReplica(RequestError):
    kafka_code = 107  # INELIGIBLE_REPLICA
    http_status = 409
    grpc_code = "FAILED_PRECONDITION"


class StaleBrokerEpoch(RequestError):
    kafka_code = 77  # STALE_BROKER_EPOCH
    http_status = 409
    grpc_code = "FAILED_PRECONDITION"


class BrokerNotRegistered(RequestError):
    kafka_code = 102  # BROKER_ID_NOT_REGISTERED
    http_status = 404
    grpc_code = "NOT_FOUND"


class NoReassignmentInProgress(RequestError):
    kafka_code = 85  # NO_REASSIGNMENT_IN_PROGRESS
    http_status = 404
    grpc_code = "NOT_FOUND"


class CoordinatorUnavailable(RequestError):
    kafka_code = 15  # COORDINATOR_NOT_AVAILABLE
    http_status = 503
    grpc_code = "UNAVAILABLE"
    retriable = True


class FencedState(RequestError):
    kafka_code = 124  # FENCED_STATE_EPOCH
    http_status = 409
    grpc_code = "FAILED_PRECONDITION"


class UnknownMember(RequestError):
    kafka_code = 25  # UNKNOWN_MEMBER_ID
    http_status = 409
    grpc_code = "FAILED_PRECONDITION"


class GroupNotEmpty(RequestError):
    kafka_code = 68  # NON_EMPTY_GROUP
    http_status = 409
    grpc_code = "FAILED_PRECONDITION"


class GroupNotFound(RequestError):
    kafka_code = 69  # GROUP_ID_NOT_FOUND
    http_status = 404
    grpc_code = "NOT_FOUND"


class LeaseLost(RequestError):
    kafka_code = 121  # INVALID_RECORD_STATE
    http_status = 409
    grpc_code = "FAILED_PRECONDITION"


class MessageNotFound(RequestError):
    kafka_code = 91  # RESOURCE_NOT_FOUND
    http_status = 404
    grpc_code = "NOT_FOUND"


class StorageError(MillpondError):
    kafka_code = 56  # KAFKA_STORAGE_ERROR
    http_status = 503
    grpc_code = "UNAVAILABLE"
    retriable = True


class DiskFull(StorageError):
    http_status = 507
    grpc_code = "RESOURCE_EXHAUSTED"


class TooManyOpenFiles(StorageError):
    grpc_code = "RESOURCE_EXHAUSTED"


class DiskFailed(StorageError):
    pass


class LogCorrupted(StorageError):
    """Says where: `file`, and `position` in it."""

    grpc_code = "DATA_LOSS"
    http_status = 500
    retriable = False

    def __init__(self, file: str, position: int, reason: str) -> None:
        super().__init__(
            f"{file} is corrupt at byte {position}: {reason}. The bytes from there on are not served; "
            "restore the file from a replica or a backup, or truncate the log before them"
        )
        self.file = file
        self.position = position
        self.reason = reason


class Truncated(StorageError):
    kafka_code = 6  # NOT_LEADER_OR_FOLLOWER: only a log that lost its leadership is truncated


class LogClosed(StorageError):
    kafka_code = 6  # NOT_LEADER_OR_FOLLOWER: its topic is being deleted, or the broker stops; the client looks anew


class UnreadableCommand(StorageError):
    http_status = 500
    grpc_code = "DATA_LOSS"
    retriable = False  # the bytes will not change


class PromisesForgotten(StorageError):
    retriable = False  # its data directory is an older one


class ClientError(MillpondError):
    http_status = 503
    grpc_code = "UNAVAILABLE"
    retriable = False


class BrokerUnreachable(ClientError):
    kafka_code = 13  # NETWORK_EXCEPTION
    retriable = True


class DeliveryTimedOut(ClientError):
    kafka_code = 7  # REQUEST_TIMED_OUT
    http_status = 504
    grpc_code = "DEADLINE_EXCEEDED"


class ClientClosed(ClientError):
    kafka_code = 13  # NETWORK_EXCEPTION


class WrongUse(ClientError):
    kafka_code = 42  # INVALID_REQUEST
    http_status = 400
    grpc_code = "FAILED_PRECONDITION"


class RefusedByBroker(ClientError):
    kafka_code = 42  # INVALID_REQUEST, if it had to be passed on; what was answered is `code`
    http_status = 502

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code
