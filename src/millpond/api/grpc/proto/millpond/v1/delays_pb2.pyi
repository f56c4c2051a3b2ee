from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ListDelaysRequest(_message.Message):
    __slots__ = ("topic", "partition", "after", "count")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    after: str
    count: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., after: _Optional[str] = ..., count: _Optional[int] = ...) -> None: ...

class DelayedMessage(_message.Message):
    __slots__ = ("message_id", "partition", "offset", "deliver_at_ms", "is_recurring")
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DELIVER_AT_MS_FIELD_NUMBER: _ClassVar[int]
    IS_RECURRING_FIELD_NUMBER: _ClassVar[int]
    message_id: str
    partition: int
    offset: int
    deliver_at_ms: int
    is_recurring: bool
    def __init__(self, message_id: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ..., deliver_at_ms: _Optional[int] = ..., is_recurring: _Optional[bool] = ...) -> None: ...

class ListDelaysResponse(_message.Message):
    __slots__ = ("pending", "messages", "next")
    PENDING_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    pending: int
    messages: _containers.RepeatedCompositeFieldContainer[DelayedMessage]
    next: str
    def __init__(self, pending: _Optional[int] = ..., messages: _Optional[_Iterable[_Union[DelayedMessage, _Mapping]]] = ..., next: _Optional[str] = ...) -> None: ...

class CancelDelayRequest(_message.Message):
    __slots__ = ("message_id",)
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    message_id: str
    def __init__(self, message_id: _Optional[str] = ...) -> None: ...

class CancelDelayResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RescheduleDelayRequest(_message.Message):
    __slots__ = ("message_id", "deliver_at_ms")
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    DELIVER_AT_MS_FIELD_NUMBER: _ClassVar[int]
    message_id: str
    deliver_at_ms: int
    def __init__(self, message_id: _Optional[str] = ..., deliver_at_ms: _Optional[int] = ...) -> None: ...

class RescheduleDelayResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
