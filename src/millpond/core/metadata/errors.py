"""What a request about metadata can get wrong, for every front door.

    RequestError
    ├── InvalidRequest               a request that contradicts itself, or names one thing twice
    ├── UnknownTopicOrPartition      a name nobody created, or a partition it does not have
    ├── UnknownTopicId               an id nobody created, or whose topic is deleted
    ├── TopicAlreadyExists           a name that is taken
    ├── InvalidPartitions            a number of partitions that cannot be
    ├── InvalidReplicationFactor     more replicas than brokers, or none
    ├── InvalidReplicaAssignment     replicas placed where they cannot be
    ├── PolicyViolation              possible, but not allowed here: internal topics, too much at once
    ├── TopicDeletionDisabled        this cluster deletes no topics
    ├── ElectionNotNeeded            the leader is already the one asked for
    ├── PreferredLeaderNotAvailable  the first replica is not there, or not in sync
    └── EligibleLeadersNotAvailable  no replica is there
    StorageError
    └── UnreadableCommand            bytes of the metadata log that this version cannot read

Names and settings that are wrong are `InvalidTopicName` and `InvalidSetting` of model/errors.py.
"""

from millpond.model.errors import RequestError, StorageError


class InvalidRequest(RequestError):
    kafka_code = 42  # INVALID_REQUEST


class UnknownTopicOrPartition(RequestError):
    kafka_code = 3  # UNKNOWN_TOPIC_OR_PARTITION
    http_status = 404
    grpc_code = "NOT_FOUND"
    retriable = True  # another broker may know it already, or this one soon


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


class UnreadableCommand(StorageError):
    http_status = 500
    grpc_code = "DATA_LOSS"
    retriable = False  # the bytes will not change
