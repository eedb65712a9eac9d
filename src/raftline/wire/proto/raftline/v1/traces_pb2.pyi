from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ShowTraceRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class TraceEvent(_message.Message):
    __slots__ = ("event", "at_ms", "group", "member", "attempt", "attempts", "reason", "partition", "producer", "nodes", "due_ms", "until_ms")
    EVENT_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    event: str
    at_ms: int
    group: str
    member: str
    attempt: int
    attempts: int
    reason: str
    partition: int
    producer: str
    nodes: _containers.RepeatedScalarFieldContainer[str]
    due_ms: int
    until_ms: int
    def __init__(self, event: _Optional[str] = ..., at_ms: _Optional[int] = ..., group: _Optional[str] = ..., member: _Optional[str] = ..., attempt: _Optional[int] = ..., attempts: _Optional[int] = ..., reason: _Optional[str] = ..., partition: _Optional[int] = ..., producer: _Optional[str] = ..., nodes: _Optional[_Iterable[str]] = ..., due_ms: _Optional[int] = ..., until_ms: _Optional[int] = ...) -> None: ...

class TraceGroup(_message.Message):
    __slots__ = ("group", "state", "attempts", "to_delivery_ms", "to_end_ms")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    TO_DELIVERY_MS_FIELD_NUMBER: _ClassVar[int]
    TO_END_MS_FIELD_NUMBER: _ClassVar[int]
    group: str
    state: str
    attempts: int
    to_delivery_ms: int
    to_end_ms: int
    def __init__(self, group: _Optional[str] = ..., state: _Optional[str] = ..., attempts: _Optional[int] = ..., to_delivery_ms: _Optional[int] = ..., to_end_ms: _Optional[int] = ...) -> None: ...

class Trace(_message.Message):
    __slots__ = ("id", "topic", "partition", "offset", "groups", "timeline", "traced", "complete")
    ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    TIMELINE_FIELD_NUMBER: _ClassVar[int]
    TRACED_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    id: str
    topic: str
    partition: int
    offset: int
    groups: _containers.RepeatedCompositeFieldContainer[TraceGroup]
    timeline: _containers.RepeatedCompositeFieldContainer[TraceEvent]
    traced: bool
    complete: bool
    def __init__(self, id: _Optional[str] = ..., topic: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ..., groups: _Optional[_Iterable[_Union[TraceGroup, _Mapping]]] = ..., timeline: _Optional[_Iterable[_Union[TraceEvent, _Mapping]]] = ..., traced: _Optional[bool] = ..., complete: _Optional[bool] = ...) -> None: ...

class SearchTracesRequest(_message.Message):
    __slots__ = ("topic", "partition", "key", "from_ms", "to_ms", "member", "group", "state", "limit", "after")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    FROM_MS_FIELD_NUMBER: _ClassVar[int]
    TO_MS_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    key: bytes
    from_ms: int
    to_ms: int
    member: str
    group: str
    state: str
    limit: int
    after: str
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., key: _Optional[bytes] = ..., from_ms: _Optional[int] = ..., to_ms: _Optional[int] = ..., member: _Optional[str] = ..., group: _Optional[str] = ..., state: _Optional[str] = ..., limit: _Optional[int] = ..., after: _Optional[str] = ...) -> None: ...

class FoundMessage(_message.Message):
    __slots__ = ("id", "partition", "offset", "timestamp_ms", "key", "groups")
    class GroupsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    id: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes
    groups: _containers.ScalarMap[str, str]
    def __init__(self, id: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ..., timestamp_ms: _Optional[int] = ..., key: _Optional[bytes] = ..., groups: _Optional[_Mapping[str, str]] = ...) -> None: ...

class SearchTracesReply(_message.Message):
    __slots__ = ("messages", "complete", "next")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[FoundMessage]
    complete: bool
    next: str
    def __init__(self, messages: _Optional[_Iterable[_Union[FoundMessage, _Mapping]]] = ..., complete: _Optional[bool] = ..., next: _Optional[str] = ...) -> None: ...
