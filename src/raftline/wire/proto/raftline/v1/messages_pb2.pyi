from raftline.wire.proto.raftline.v1 import errors_pb2 as _errors_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Form(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FORM_MESSAGES: _ClassVar[Form]
    FORM_BATCHES: _ClassVar[Form]
FORM_MESSAGES: Form
FORM_BATCHES: Form

class Header(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: bytes
    def __init__(self, name: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...

class NewMessage(_message.Message):
    __slots__ = ("value", "key", "headers", "partition", "timestamp_ms", "priority", "priority_name", "delay_ms", "due_ms", "dedup_key")
    VALUE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_NAME_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    DEDUP_KEY_FIELD_NUMBER: _ClassVar[int]
    value: bytes
    key: bytes
    headers: _containers.RepeatedCompositeFieldContainer[Header]
    partition: int
    timestamp_ms: int
    priority: int
    priority_name: str
    delay_ms: int
    due_ms: int
    dedup_key: str
    def __init__(self, value: _Optional[bytes] = ..., key: _Optional[bytes] = ..., headers: _Optional[_Iterable[_Union[Header, _Mapping]]] = ..., partition: _Optional[int] = ..., timestamp_ms: _Optional[int] = ..., priority: _Optional[int] = ..., priority_name: _Optional[str] = ..., delay_ms: _Optional[int] = ..., due_ms: _Optional[int] = ..., dedup_key: _Optional[str] = ...) -> None: ...

class SendRequest(_message.Message):
    __slots__ = ("topic", "messages", "producer")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    topic: str
    messages: _containers.RepeatedCompositeFieldContainer[NewMessage]
    producer: str
    def __init__(self, topic: _Optional[str] = ..., messages: _Optional[_Iterable[_Union[NewMessage, _Mapping]]] = ..., producer: _Optional[str] = ...) -> None: ...

class SendResult(_message.Message):
    __slots__ = ("id", "partition", "offset", "error", "duplicate", "delayed", "due_ms", "priority")
    ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    DUPLICATE_FIELD_NUMBER: _ClassVar[int]
    DELAYED_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    id: str
    partition: int
    offset: int
    error: _errors_pb2.Error
    duplicate: bool
    delayed: bool
    due_ms: int
    priority: int
    def __init__(self, id: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ..., error: _Optional[_Union[_errors_pb2.Error, _Mapping]] = ..., duplicate: _Optional[bool] = ..., delayed: _Optional[bool] = ..., due_ms: _Optional[int] = ..., priority: _Optional[int] = ...) -> None: ...

class SendReply(_message.Message):
    __slots__ = ("results", "error")
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[SendResult]
    error: _errors_pb2.Error
    def __init__(self, results: _Optional[_Iterable[_Union[SendResult, _Mapping]]] = ..., error: _Optional[_Union[_errors_pb2.Error, _Mapping]] = ...) -> None: ...

class SendBatchesRequest(_message.Message):
    __slots__ = ("topic", "partition", "batches", "priority", "dedup_key")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    DEDUP_KEY_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    batches: bytes
    priority: int
    dedup_key: str
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., batches: _Optional[bytes] = ..., priority: _Optional[int] = ..., dedup_key: _Optional[str] = ...) -> None: ...

class BatchResult(_message.Message):
    __slots__ = ("partition", "base_offset", "count", "duplicate", "error")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    DUPLICATE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    partition: int
    base_offset: int
    count: int
    duplicate: bool
    error: _errors_pb2.Error
    def __init__(self, partition: _Optional[int] = ..., base_offset: _Optional[int] = ..., count: _Optional[int] = ..., duplicate: _Optional[bool] = ..., error: _Optional[_Union[_errors_pb2.Error, _Mapping]] = ...) -> None: ...

class SendBatchesReply(_message.Message):
    __slots__ = ("results", "error")
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[BatchResult]
    error: _errors_pb2.Error
    def __init__(self, results: _Optional[_Iterable[_Union[BatchResult, _Mapping]]] = ..., error: _Optional[_Union[_errors_pb2.Error, _Mapping]] = ...) -> None: ...

class Message(_message.Message):
    __slots__ = ("id", "topic", "partition", "offset", "timestamp_ms", "key", "value", "headers", "priority")
    ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    id: str
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes
    value: bytes
    headers: _containers.RepeatedCompositeFieldContainer[Header]
    priority: int
    def __init__(self, id: _Optional[str] = ..., topic: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ..., timestamp_ms: _Optional[int] = ..., key: _Optional[bytes] = ..., value: _Optional[bytes] = ..., headers: _Optional[_Iterable[_Union[Header, _Mapping]]] = ..., priority: _Optional[int] = ...) -> None: ...

class ReadRequest(_message.Message):
    __slots__ = ("topic", "partition", "offset", "limit", "bytes_max", "wait_ms", "linearizable", "any_replica", "form")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    LINEARIZABLE_FIELD_NUMBER: _ClassVar[int]
    ANY_REPLICA_FIELD_NUMBER: _ClassVar[int]
    FORM_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    offset: int
    limit: int
    bytes_max: int
    wait_ms: int
    linearizable: bool
    any_replica: bool
    form: Form
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ..., limit: _Optional[int] = ..., bytes_max: _Optional[int] = ..., wait_ms: _Optional[int] = ..., linearizable: _Optional[bool] = ..., any_replica: _Optional[bool] = ..., form: _Optional[_Union[Form, str]] = ...) -> None: ...

class ReadReply(_message.Message):
    __slots__ = ("messages", "batches", "next_offset", "log_start", "commit_end")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOG_START_FIELD_NUMBER: _ClassVar[int]
    COMMIT_END_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[Message]
    batches: bytes
    next_offset: int
    log_start: int
    commit_end: int
    def __init__(self, messages: _Optional[_Iterable[_Union[Message, _Mapping]]] = ..., batches: _Optional[bytes] = ..., next_offset: _Optional[int] = ..., log_start: _Optional[int] = ..., commit_end: _Optional[int] = ...) -> None: ...

class FindOffsetRequest(_message.Message):
    __slots__ = ("topic", "partition", "time_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    TIME_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    time_ms: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., time_ms: _Optional[int] = ...) -> None: ...

class FindOffsetReply(_message.Message):
    __slots__ = ("offset", "timestamp_ms", "log_start", "commit_end")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    LOG_START_FIELD_NUMBER: _ClassVar[int]
    COMMIT_END_FIELD_NUMBER: _ClassVar[int]
    offset: int
    timestamp_ms: int
    log_start: int
    commit_end: int
    def __init__(self, offset: _Optional[int] = ..., timestamp_ms: _Optional[int] = ..., log_start: _Optional[int] = ..., commit_end: _Optional[int] = ...) -> None: ...
