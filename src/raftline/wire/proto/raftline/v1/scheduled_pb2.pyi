from raftline.wire.proto.raftline.v1 import messages_pb2 as _messages_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class WaitingMessage(_message.Message):
    __slots__ = ("id", "partition", "number", "due_ms", "in_ms", "priority")
    ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    IN_MS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    id: str
    partition: int
    number: int
    due_ms: int
    in_ms: int
    priority: int
    def __init__(self, id: _Optional[str] = ..., partition: _Optional[int] = ..., number: _Optional[int] = ..., due_ms: _Optional[int] = ..., in_ms: _Optional[int] = ..., priority: _Optional[int] = ...) -> None: ...

class ListScheduledRequest(_message.Message):
    __slots__ = ("topic", "partition", "limit", "after")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    limit: int
    after: str
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., limit: _Optional[int] = ..., after: _Optional[str] = ...) -> None: ...

class ListScheduledReply(_message.Message):
    __slots__ = ("messages", "count", "next")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[WaitingMessage]
    count: int
    next: str
    def __init__(self, messages: _Optional[_Iterable[_Union[WaitingMessage, _Mapping]]] = ..., count: _Optional[int] = ..., next: _Optional[str] = ...) -> None: ...

class ShowScheduledRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class ShowScheduledReply(_message.Message):
    __slots__ = ("state", "waiting", "message", "message_id")
    STATE_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    state: str
    waiting: WaitingMessage
    message: _messages_pb2.Message
    message_id: str
    def __init__(self, state: _Optional[str] = ..., waiting: _Optional[_Union[WaitingMessage, _Mapping]] = ..., message: _Optional[_Union[_messages_pb2.Message, _Mapping]] = ..., message_id: _Optional[str] = ...) -> None: ...

class CancelScheduledRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class CancelScheduledReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class MoveScheduledRequest(_message.Message):
    __slots__ = ("id", "delay_ms", "due_ms")
    ID_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    id: str
    delay_ms: int
    due_ms: int
    def __init__(self, id: _Optional[str] = ..., delay_ms: _Optional[int] = ..., due_ms: _Optional[int] = ...) -> None: ...

class MoveScheduledReply(_message.Message):
    __slots__ = ("due_ms",)
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    due_ms: int
    def __init__(self, due_ms: _Optional[int] = ...) -> None: ...

class ScheduledStatsRequest(_message.Message):
    __slots__ = ("topic", "partition")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ...) -> None: ...

class ScheduledCounts(_message.Message):
    __slots__ = ("partition", "waiting", "released", "cancelled", "scheduled", "bytes", "next_due_ms")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    RELEASED_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    SCHEDULED_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    NEXT_DUE_MS_FIELD_NUMBER: _ClassVar[int]
    partition: int
    waiting: int
    released: int
    cancelled: int
    scheduled: int
    bytes: int
    next_due_ms: int
    def __init__(self, partition: _Optional[int] = ..., waiting: _Optional[int] = ..., released: _Optional[int] = ..., cancelled: _Optional[int] = ..., scheduled: _Optional[int] = ..., bytes: _Optional[int] = ..., next_due_ms: _Optional[int] = ...) -> None: ...

class ScheduledStatsReply(_message.Message):
    __slots__ = ("total", "partitions")
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    total: ScheduledCounts
    partitions: _containers.RepeatedCompositeFieldContainer[ScheduledCounts]
    def __init__(self, total: _Optional[_Union[ScheduledCounts, _Mapping]] = ..., partitions: _Optional[_Iterable[_Union[ScheduledCounts, _Mapping]]] = ...) -> None: ...
