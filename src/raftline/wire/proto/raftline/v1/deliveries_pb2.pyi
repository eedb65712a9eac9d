from raftline.wire.proto.raftline.v1 import errors_pb2 as _errors_pb2
from raftline.wire.proto.raftline.v1 import messages_pb2 as _messages_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Start(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    START_FIRST: _ClassVar[Start]
    START_NEXT: _ClassVar[Start]

class Verb(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    VERB_UNSPECIFIED: _ClassVar[Verb]
    VERB_ACK: _ClassVar[Verb]
    VERB_NACK: _ClassVar[Verb]
    VERB_REJECT: _ClassVar[Verb]
    VERB_EXTEND: _ClassVar[Verb]
    VERB_RELEASE: _ClassVar[Verb]
START_FIRST: Start
START_NEXT: Start
VERB_UNSPECIFIED: Verb
VERB_ACK: Verb
VERB_NACK: Verb
VERB_REJECT: Verb
VERB_EXTEND: Verb
VERB_RELEASE: Verb

class ReceiveRequest(_message.Message):
    __slots__ = ("topic", "group", "count", "wait_ms", "lease_ms", "member", "partition", "bytes_max", "ordered", "start", "form")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    ORDERED_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    FORM_FIELD_NUMBER: _ClassVar[int]
    topic: str
    group: str
    count: int
    wait_ms: int
    lease_ms: int
    member: str
    partition: int
    bytes_max: int
    ordered: bool
    start: Start
    form: _messages_pb2.Form
    def __init__(self, topic: _Optional[str] = ..., group: _Optional[str] = ..., count: _Optional[int] = ..., wait_ms: _Optional[int] = ..., lease_ms: _Optional[int] = ..., member: _Optional[str] = ..., partition: _Optional[int] = ..., bytes_max: _Optional[int] = ..., ordered: _Optional[bool] = ..., start: _Optional[_Union[Start, str]] = ..., form: _Optional[_Union[_messages_pb2.Form, str]] = ...) -> None: ...

class Delivery(_message.Message):
    __slots__ = ("message", "attempt", "lease_token", "lease_expires_ms")
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    LEASE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    LEASE_EXPIRES_MS_FIELD_NUMBER: _ClassVar[int]
    message: _messages_pb2.Message
    attempt: int
    lease_token: str
    lease_expires_ms: int
    def __init__(self, message: _Optional[_Union[_messages_pb2.Message, _Mapping]] = ..., attempt: _Optional[int] = ..., lease_token: _Optional[str] = ..., lease_expires_ms: _Optional[int] = ...) -> None: ...

class LeasedBatches(_message.Message):
    __slots__ = ("partition", "term", "sequence", "lease_expires_ms", "spans", "batches")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LEASE_EXPIRES_MS_FIELD_NUMBER: _ClassVar[int]
    SPANS_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    partition: int
    term: int
    sequence: int
    lease_expires_ms: int
    spans: _containers.RepeatedScalarFieldContainer[int]
    batches: bytes
    def __init__(self, partition: _Optional[int] = ..., term: _Optional[int] = ..., sequence: _Optional[int] = ..., lease_expires_ms: _Optional[int] = ..., spans: _Optional[_Iterable[int]] = ..., batches: _Optional[bytes] = ...) -> None: ...

class ReceiveReply(_message.Message):
    __slots__ = ("deliveries", "batches")
    DELIVERIES_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    deliveries: _containers.RepeatedCompositeFieldContainer[Delivery]
    batches: LeasedBatches
    def __init__(self, deliveries: _Optional[_Iterable[_Union[Delivery, _Mapping]]] = ..., batches: _Optional[_Union[LeasedBatches, _Mapping]] = ...) -> None: ...

class Settle(_message.Message):
    __slots__ = ("lease_token", "verb", "reason", "delay_ms", "lease_ms")
    LEASE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    VERB_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    lease_token: str
    verb: Verb
    reason: str
    delay_ms: int
    lease_ms: int
    def __init__(self, lease_token: _Optional[str] = ..., verb: _Optional[_Union[Verb, str]] = ..., reason: _Optional[str] = ..., delay_ms: _Optional[int] = ..., lease_ms: _Optional[int] = ...) -> None: ...

class SettleRequest(_message.Message):
    __slots__ = ("settles",)
    SETTLES_FIELD_NUMBER: _ClassVar[int]
    settles: _containers.RepeatedCompositeFieldContainer[Settle]
    def __init__(self, settles: _Optional[_Iterable[_Union[Settle, _Mapping]]] = ...) -> None: ...

class SettleResult(_message.Message):
    __slots__ = ("lease_token", "error")
    LEASE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    lease_token: str
    error: _errors_pb2.Error
    def __init__(self, lease_token: _Optional[str] = ..., error: _Optional[_Union[_errors_pb2.Error, _Mapping]] = ...) -> None: ...

class SettleReply(_message.Message):
    __slots__ = ("settled", "results")
    SETTLED_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    settled: int
    results: _containers.RepeatedCompositeFieldContainer[SettleResult]
    def __init__(self, settled: _Optional[int] = ..., results: _Optional[_Iterable[_Union[SettleResult, _Mapping]]] = ...) -> None: ...

class RangeSettle(_message.Message):
    __slots__ = ("verb", "term", "sequence", "attempt", "generation", "ranges")
    VERB_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    verb: Verb
    term: int
    sequence: int
    attempt: int
    generation: int
    ranges: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, verb: _Optional[_Union[Verb, str]] = ..., term: _Optional[int] = ..., sequence: _Optional[int] = ..., attempt: _Optional[int] = ..., generation: _Optional[int] = ..., ranges: _Optional[_Iterable[int]] = ...) -> None: ...

class SettleRangesRequest(_message.Message):
    __slots__ = ("topic", "partition", "group", "settles", "reason", "delay_ms", "lease_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    SETTLES_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    group: str
    settles: _containers.RepeatedCompositeFieldContainer[RangeSettle]
    reason: str
    delay_ms: int
    lease_ms: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., group: _Optional[str] = ..., settles: _Optional[_Iterable[_Union[RangeSettle, _Mapping]]] = ..., reason: _Optional[str] = ..., delay_ms: _Optional[int] = ..., lease_ms: _Optional[int] = ...) -> None: ...

class LostRanges(_message.Message):
    __slots__ = ("ranges",)
    RANGES_FIELD_NUMBER: _ClassVar[int]
    ranges: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, ranges: _Optional[_Iterable[int]] = ...) -> None: ...

class SettleRangesReply(_message.Message):
    __slots__ = ("lost",)
    LOST_FIELD_NUMBER: _ClassVar[int]
    lost: _containers.RepeatedCompositeFieldContainer[LostRanges]
    def __init__(self, lost: _Optional[_Iterable[_Union[LostRanges, _Mapping]]] = ...) -> None: ...

class ReceiveStreamRequest(_message.Message):
    __slots__ = ("open", "credit", "settle", "settle_ranges")
    OPEN_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    SETTLE_FIELD_NUMBER: _ClassVar[int]
    SETTLE_RANGES_FIELD_NUMBER: _ClassVar[int]
    open: Open
    credit: Credit
    settle: SettleRequest
    settle_ranges: SettleRangesRequest
    def __init__(self, open: _Optional[_Union[Open, _Mapping]] = ..., credit: _Optional[_Union[Credit, _Mapping]] = ..., settle: _Optional[_Union[SettleRequest, _Mapping]] = ..., settle_ranges: _Optional[_Union[SettleRangesRequest, _Mapping]] = ...) -> None: ...

class Open(_message.Message):
    __slots__ = ("topic", "group", "member", "window", "count", "lease_ms", "partition", "bytes_max", "ordered", "start", "form")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    ORDERED_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    FORM_FIELD_NUMBER: _ClassVar[int]
    topic: str
    group: str
    member: str
    window: int
    count: int
    lease_ms: int
    partition: int
    bytes_max: int
    ordered: bool
    start: Start
    form: _messages_pb2.Form
    def __init__(self, topic: _Optional[str] = ..., group: _Optional[str] = ..., member: _Optional[str] = ..., window: _Optional[int] = ..., count: _Optional[int] = ..., lease_ms: _Optional[int] = ..., partition: _Optional[int] = ..., bytes_max: _Optional[int] = ..., ordered: _Optional[bool] = ..., start: _Optional[_Union[Start, str]] = ..., form: _Optional[_Union[_messages_pb2.Form, str]] = ...) -> None: ...

class Credit(_message.Message):
    __slots__ = ("count",)
    COUNT_FIELD_NUMBER: _ClassVar[int]
    count: int
    def __init__(self, count: _Optional[int] = ...) -> None: ...

class ReceiveStreamReply(_message.Message):
    __slots__ = ("received", "settled", "settled_ranges", "refused")
    RECEIVED_FIELD_NUMBER: _ClassVar[int]
    SETTLED_FIELD_NUMBER: _ClassVar[int]
    SETTLED_RANGES_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    received: ReceiveReply
    settled: SettleReply
    settled_ranges: SettleRangesReply
    refused: _errors_pb2.Error
    def __init__(self, received: _Optional[_Union[ReceiveReply, _Mapping]] = ..., settled: _Optional[_Union[SettleReply, _Mapping]] = ..., settled_ranges: _Optional[_Union[SettleRangesReply, _Mapping]] = ..., refused: _Optional[_Union[_errors_pb2.Error, _Mapping]] = ...) -> None: ...
