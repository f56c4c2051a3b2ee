from millpond.api.grpc.proto.millpond.v1 import messages_pb2 as _messages_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Priority(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PRIORITY_UNSPECIFIED: _ClassVar[Priority]
    PRIORITY_LOW: _ClassVar[Priority]
    PRIORITY_NORMAL: _ClassVar[Priority]
    PRIORITY_HIGH: _ClassVar[Priority]
PRIORITY_UNSPECIFIED: Priority
PRIORITY_LOW: Priority
PRIORITY_NORMAL: Priority
PRIORITY_HIGH: Priority

class NewQueueMessage(_message.Message):
    __slots__ = ("value", "key", "headers", "delay_ms", "deliver_at_ms", "priority", "ttl_ms")
    VALUE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    DELIVER_AT_MS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    value: bytes
    key: bytes
    headers: _containers.RepeatedCompositeFieldContainer[_messages_pb2.Header]
    delay_ms: int
    deliver_at_ms: int
    priority: Priority
    ttl_ms: int
    def __init__(self, value: _Optional[bytes] = ..., key: _Optional[bytes] = ..., headers: _Optional[_Iterable[_Union[_messages_pb2.Header, _Mapping]]] = ..., delay_ms: _Optional[int] = ..., deliver_at_ms: _Optional[int] = ..., priority: _Optional[_Union[Priority, str]] = ..., ttl_ms: _Optional[int] = ...) -> None: ...

class SendRequest(_message.Message):
    __slots__ = ("topic", "messages")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    topic: str
    messages: _containers.RepeatedCompositeFieldContainer[NewQueueMessage]
    def __init__(self, topic: _Optional[str] = ..., messages: _Optional[_Iterable[_Union[NewQueueMessage, _Mapping]]] = ...) -> None: ...

class SentMessage(_message.Message):
    __slots__ = ("message_id", "partition", "offset")
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    message_id: str
    partition: int
    offset: int
    def __init__(self, message_id: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class SendResponse(_message.Message):
    __slots__ = ("messages",)
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[SentMessage]
    def __init__(self, messages: _Optional[_Iterable[_Union[SentMessage, _Mapping]]] = ...) -> None: ...

class ReceiveRequest(_message.Message):
    __slots__ = ("topic", "group", "max", "wait_ms", "visibility_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    VISIBILITY_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    group: str
    max: int
    wait_ms: int
    visibility_ms: int
    def __init__(self, topic: _Optional[str] = ..., group: _Optional[str] = ..., max: _Optional[int] = ..., wait_ms: _Optional[int] = ..., visibility_ms: _Optional[int] = ...) -> None: ...

class QueueMessage(_message.Message):
    __slots__ = ("message", "message_id", "receipt", "attempt")
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    RECEIPT_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    message: _messages_pb2.Message
    message_id: str
    receipt: str
    attempt: int
    def __init__(self, message: _Optional[_Union[_messages_pb2.Message, _Mapping]] = ..., message_id: _Optional[str] = ..., receipt: _Optional[str] = ..., attempt: _Optional[int] = ...) -> None: ...

class ReceiveResponse(_message.Message):
    __slots__ = ("messages",)
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[QueueMessage]
    def __init__(self, messages: _Optional[_Iterable[_Union[QueueMessage, _Mapping]]] = ...) -> None: ...

class AckRequest(_message.Message):
    __slots__ = ("topic", "group", "receipts")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    RECEIPTS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    group: str
    receipts: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, topic: _Optional[str] = ..., group: _Optional[str] = ..., receipts: _Optional[_Iterable[str]] = ...) -> None: ...

class NackRequest(_message.Message):
    __slots__ = ("topic", "group", "receipts", "delay_ms", "error")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    RECEIPTS_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    topic: str
    group: str
    receipts: _containers.RepeatedScalarFieldContainer[str]
    delay_ms: int
    error: str
    def __init__(self, topic: _Optional[str] = ..., group: _Optional[str] = ..., receipts: _Optional[_Iterable[str]] = ..., delay_ms: _Optional[int] = ..., error: _Optional[str] = ...) -> None: ...

class ExtendRequest(_message.Message):
    __slots__ = ("topic", "group", "receipts", "visibility_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    RECEIPTS_FIELD_NUMBER: _ClassVar[int]
    VISIBILITY_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    group: str
    receipts: _containers.RepeatedScalarFieldContainer[str]
    visibility_ms: int
    def __init__(self, topic: _Optional[str] = ..., group: _Optional[str] = ..., receipts: _Optional[_Iterable[str]] = ..., visibility_ms: _Optional[int] = ...) -> None: ...

class RefusedReceipt(_message.Message):
    __slots__ = ("receipt", "failure")
    RECEIPT_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    receipt: str
    failure: _messages_pb2.Failure
    def __init__(self, receipt: _Optional[str] = ..., failure: _Optional[_Union[_messages_pb2.Failure, _Mapping]] = ...) -> None: ...

class Settled(_message.Message):
    __slots__ = ("settled", "refused")
    SETTLED_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    settled: int
    refused: _containers.RepeatedCompositeFieldContainer[RefusedReceipt]
    def __init__(self, settled: _Optional[int] = ..., refused: _Optional[_Iterable[_Union[RefusedReceipt, _Mapping]]] = ...) -> None: ...

class Begin(_message.Message):
    __slots__ = ("topic", "group", "unsettled_max", "visibility_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    UNSETTLED_MAX_FIELD_NUMBER: _ClassVar[int]
    VISIBILITY_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    group: str
    unsettled_max: int
    visibility_ms: int
    def __init__(self, topic: _Optional[str] = ..., group: _Optional[str] = ..., unsettled_max: _Optional[int] = ..., visibility_ms: _Optional[int] = ...) -> None: ...

class WorkAck(_message.Message):
    __slots__ = ("receipts",)
    RECEIPTS_FIELD_NUMBER: _ClassVar[int]
    receipts: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, receipts: _Optional[_Iterable[str]] = ...) -> None: ...

class WorkNack(_message.Message):
    __slots__ = ("receipts", "delay_ms", "error")
    RECEIPTS_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    receipts: _containers.RepeatedScalarFieldContainer[str]
    delay_ms: int
    error: str
    def __init__(self, receipts: _Optional[_Iterable[str]] = ..., delay_ms: _Optional[int] = ..., error: _Optional[str] = ...) -> None: ...

class WorkExtend(_message.Message):
    __slots__ = ("receipts", "visibility_ms")
    RECEIPTS_FIELD_NUMBER: _ClassVar[int]
    VISIBILITY_MS_FIELD_NUMBER: _ClassVar[int]
    receipts: _containers.RepeatedScalarFieldContainer[str]
    visibility_ms: int
    def __init__(self, receipts: _Optional[_Iterable[str]] = ..., visibility_ms: _Optional[int] = ...) -> None: ...

class WorkRequest(_message.Message):
    __slots__ = ("begin", "ack", "nack", "extend")
    BEGIN_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    NACK_FIELD_NUMBER: _ClassVar[int]
    EXTEND_FIELD_NUMBER: _ClassVar[int]
    begin: Begin
    ack: WorkAck
    nack: WorkNack
    extend: WorkExtend
    def __init__(self, begin: _Optional[_Union[Begin, _Mapping]] = ..., ack: _Optional[_Union[WorkAck, _Mapping]] = ..., nack: _Optional[_Union[WorkNack, _Mapping]] = ..., extend: _Optional[_Union[WorkExtend, _Mapping]] = ...) -> None: ...

class WorkResponse(_message.Message):
    __slots__ = ("delivery", "settled")
    DELIVERY_FIELD_NUMBER: _ClassVar[int]
    SETTLED_FIELD_NUMBER: _ClassVar[int]
    delivery: ReceiveResponse
    settled: Settled
    def __init__(self, delivery: _Optional[_Union[ReceiveResponse, _Mapping]] = ..., settled: _Optional[_Union[Settled, _Mapping]] = ...) -> None: ...

class ListDeadLettersRequest(_message.Message):
    __slots__ = ("topic", "group", "count", "after")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    topic: str
    group: str
    count: int
    after: str
    def __init__(self, topic: _Optional[str] = ..., group: _Optional[str] = ..., count: _Optional[int] = ..., after: _Optional[str] = ...) -> None: ...

class DeadLetter(_message.Message):
    __slots__ = ("message", "message_id", "origin", "group", "attempts", "error")
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    message: _messages_pb2.Message
    message_id: str
    origin: str
    group: str
    attempts: int
    error: str
    def __init__(self, message: _Optional[_Union[_messages_pb2.Message, _Mapping]] = ..., message_id: _Optional[str] = ..., origin: _Optional[str] = ..., group: _Optional[str] = ..., attempts: _Optional[int] = ..., error: _Optional[str] = ...) -> None: ...

class ListDeadLettersResponse(_message.Message):
    __slots__ = ("topic", "letters", "next")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    LETTERS_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    topic: str
    letters: _containers.RepeatedCompositeFieldContainer[DeadLetter]
    next: str
    def __init__(self, topic: _Optional[str] = ..., letters: _Optional[_Iterable[_Union[DeadLetter, _Mapping]]] = ..., next: _Optional[str] = ...) -> None: ...

class RedriveRequest(_message.Message):
    __slots__ = ("topic", "group", "max")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    topic: str
    group: str
    max: int
    def __init__(self, topic: _Optional[str] = ..., group: _Optional[str] = ..., max: _Optional[int] = ...) -> None: ...

class RedriveResponse(_message.Message):
    __slots__ = ("redriven",)
    REDRIVEN_FIELD_NUMBER: _ClassVar[int]
    redriven: int
    def __init__(self, redriven: _Optional[int] = ...) -> None: ...

class GetStatsRequest(_message.Message):
    __slots__ = ("topic", "group")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    topic: str
    group: str
    def __init__(self, topic: _Optional[str] = ..., group: _Optional[str] = ...) -> None: ...

class PartitionDepth(_message.Message):
    __slots__ = ("partition", "ready", "in_flight", "waiting", "dying", "start_offset", "end_offset")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    DYING_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    partition: int
    ready: int
    in_flight: int
    waiting: int
    dying: int
    start_offset: int
    end_offset: int
    def __init__(self, partition: _Optional[int] = ..., ready: _Optional[int] = ..., in_flight: _Optional[int] = ..., waiting: _Optional[int] = ..., dying: _Optional[int] = ..., start_offset: _Optional[int] = ..., end_offset: _Optional[int] = ...) -> None: ...

class QueueStats(_message.Message):
    __slots__ = ("ready", "in_flight", "waiting", "dying", "partitions")
    READY_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    DYING_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    ready: int
    in_flight: int
    waiting: int
    dying: int
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionDepth]
    def __init__(self, ready: _Optional[int] = ..., in_flight: _Optional[int] = ..., waiting: _Optional[int] = ..., dying: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[PartitionDepth, _Mapping]]] = ...) -> None: ...
