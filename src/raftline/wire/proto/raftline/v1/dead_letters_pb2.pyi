from raftline.wire.proto.raftline.v1 import messages_pb2 as _messages_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DeadLetterFilter(_message.Message):
    __slots__ = ("group", "reason", "key", "from_ms", "to_ms")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    FROM_MS_FIELD_NUMBER: _ClassVar[int]
    TO_MS_FIELD_NUMBER: _ClassVar[int]
    group: str
    reason: str
    key: bytes
    from_ms: int
    to_ms: int
    def __init__(self, group: _Optional[str] = ..., reason: _Optional[str] = ..., key: _Optional[bytes] = ..., from_ms: _Optional[int] = ..., to_ms: _Optional[int] = ...) -> None: ...

class ListDeadLettersRequest(_message.Message):
    __slots__ = ("topic", "filter", "limit", "after", "state")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    filter: DeadLetterFilter
    limit: int
    after: str
    state: str
    def __init__(self, topic: _Optional[str] = ..., filter: _Optional[_Union[DeadLetterFilter, _Mapping]] = ..., limit: _Optional[int] = ..., after: _Optional[str] = ..., state: _Optional[str] = ...) -> None: ...

class DeadLetter(_message.Message):
    __slots__ = ("message", "state", "origin_id", "origin_topic", "origin_partition", "origin_offset", "group", "generation", "reason", "attempts", "first_ms", "last_ms", "dead_ms", "member", "error", "lost")
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_ID_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_TOPIC_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_PARTITION_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    FIRST_MS_FIELD_NUMBER: _ClassVar[int]
    LAST_MS_FIELD_NUMBER: _ClassVar[int]
    DEAD_MS_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    message: _messages_pb2.Message
    state: str
    origin_id: str
    origin_topic: str
    origin_partition: int
    origin_offset: int
    group: str
    generation: int
    reason: str
    attempts: int
    first_ms: int
    last_ms: int
    dead_ms: int
    member: str
    error: str
    lost: str
    def __init__(self, message: _Optional[_Union[_messages_pb2.Message, _Mapping]] = ..., state: _Optional[str] = ..., origin_id: _Optional[str] = ..., origin_topic: _Optional[str] = ..., origin_partition: _Optional[int] = ..., origin_offset: _Optional[int] = ..., group: _Optional[str] = ..., generation: _Optional[int] = ..., reason: _Optional[str] = ..., attempts: _Optional[int] = ..., first_ms: _Optional[int] = ..., last_ms: _Optional[int] = ..., dead_ms: _Optional[int] = ..., member: _Optional[str] = ..., error: _Optional[str] = ..., lost: _Optional[str] = ...) -> None: ...

class ListDeadLettersReply(_message.Message):
    __slots__ = ("letters", "next")
    LETTERS_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    letters: _containers.RepeatedCompositeFieldContainer[DeadLetter]
    next: str
    def __init__(self, letters: _Optional[_Iterable[_Union[DeadLetter, _Mapping]]] = ..., next: _Optional[str] = ...) -> None: ...

class ShowDeadLetterRequest(_message.Message):
    __slots__ = ("id", "topic")
    ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    id: str
    topic: str
    def __init__(self, id: _Optional[str] = ..., topic: _Optional[str] = ...) -> None: ...

class DeadLetterWork(_message.Message):
    __slots__ = ("topic", "ids", "all", "filter", "rate_per_s", "dry_run", "limit", "after")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    ALL_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    RATE_PER_S_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    topic: str
    ids: _containers.RepeatedScalarFieldContainer[str]
    all: bool
    filter: DeadLetterFilter
    rate_per_s: int
    dry_run: bool
    limit: int
    after: str
    def __init__(self, topic: _Optional[str] = ..., ids: _Optional[_Iterable[str]] = ..., all: _Optional[bool] = ..., filter: _Optional[_Union[DeadLetterFilter, _Mapping]] = ..., rate_per_s: _Optional[int] = ..., dry_run: _Optional[bool] = ..., limit: _Optional[int] = ..., after: _Optional[str] = ...) -> None: ...

class SkippedLetter(_message.Message):
    __slots__ = ("id", "why")
    ID_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    id: str
    why: str
    def __init__(self, id: _Optional[str] = ..., why: _Optional[str] = ...) -> None: ...

class DeadLetterWorkReply(_message.Message):
    __slots__ = ("matched", "done", "skipped", "next", "dry_run")
    MATCHED_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    matched: int
    done: int
    skipped: _containers.RepeatedCompositeFieldContainer[SkippedLetter]
    next: str
    dry_run: bool
    def __init__(self, matched: _Optional[int] = ..., done: _Optional[int] = ..., skipped: _Optional[_Iterable[_Union[SkippedLetter, _Mapping]]] = ..., next: _Optional[str] = ..., dry_run: _Optional[bool] = ...) -> None: ...
