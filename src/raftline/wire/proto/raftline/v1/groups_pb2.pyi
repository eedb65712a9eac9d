from raftline.wire.proto.raftline.v1 import messages_pb2 as _messages_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    KIND_STREAM: _ClassVar[Kind]
    KIND_WORK: _ClassVar[Kind]

class End(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    END_EARLIEST: _ClassVar[End]
    END_LATEST: _ClassVar[End]
KIND_STREAM: Kind
KIND_WORK: Kind
END_EARLIEST: End
END_LATEST: End

class Partitions(_message.Message):
    __slots__ = ("topic", "partitions")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partitions: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, topic: _Optional[str] = ..., partitions: _Optional[_Iterable[int]] = ...) -> None: ...

class JoinGroupRequest(_message.Message):
    __slots__ = ("group", "topics", "member", "client", "assignor", "session_ms", "revoke_ms")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    ASSIGNOR_FIELD_NUMBER: _ClassVar[int]
    SESSION_MS_FIELD_NUMBER: _ClassVar[int]
    REVOKE_MS_FIELD_NUMBER: _ClassVar[int]
    group: str
    topics: _containers.RepeatedScalarFieldContainer[str]
    member: str
    client: str
    assignor: str
    session_ms: int
    revoke_ms: int
    def __init__(self, group: _Optional[str] = ..., topics: _Optional[_Iterable[str]] = ..., member: _Optional[str] = ..., client: _Optional[str] = ..., assignor: _Optional[str] = ..., session_ms: _Optional[int] = ..., revoke_ms: _Optional[int] = ...) -> None: ...

class MemberReply(_message.Message):
    __slots__ = ("member", "generation", "state", "partitions", "revoke", "members")
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    REVOKE_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    member: str
    generation: int
    state: str
    partitions: _containers.RepeatedCompositeFieldContainer[Partitions]
    revoke: _containers.RepeatedCompositeFieldContainer[Partitions]
    members: int
    def __init__(self, member: _Optional[str] = ..., generation: _Optional[int] = ..., state: _Optional[str] = ..., partitions: _Optional[_Iterable[_Union[Partitions, _Mapping]]] = ..., revoke: _Optional[_Iterable[_Union[Partitions, _Mapping]]] = ..., members: _Optional[int] = ...) -> None: ...

class HeartbeatRequest(_message.Message):
    __slots__ = ("group", "member", "generation", "revoked")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    REVOKED_FIELD_NUMBER: _ClassVar[int]
    group: str
    member: str
    generation: int
    revoked: _containers.RepeatedCompositeFieldContainer[Partitions]
    def __init__(self, group: _Optional[str] = ..., member: _Optional[str] = ..., generation: _Optional[int] = ..., revoked: _Optional[_Iterable[_Union[Partitions, _Mapping]]] = ...) -> None: ...

class LeaveGroupRequest(_message.Message):
    __slots__ = ("group", "member", "generation")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    group: str
    member: str
    generation: int
    def __init__(self, group: _Optional[str] = ..., member: _Optional[str] = ..., generation: _Optional[int] = ...) -> None: ...

class LeaveGroupReply(_message.Message):
    __slots__ = ("generation",)
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    generation: int
    def __init__(self, generation: _Optional[int] = ...) -> None: ...

class PollRequest(_message.Message):
    __slots__ = ("group", "member", "generation", "poll", "limit", "bytes_max", "wait_ms")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    POLL_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    group: str
    member: str
    generation: int
    poll: int
    limit: int
    bytes_max: int
    wait_ms: int
    def __init__(self, group: _Optional[str] = ..., member: _Optional[str] = ..., generation: _Optional[int] = ..., poll: _Optional[int] = ..., limit: _Optional[int] = ..., bytes_max: _Optional[int] = ..., wait_ms: _Optional[int] = ...) -> None: ...

class PollReply(_message.Message):
    __slots__ = ("member", "messages", "next", "poll")
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    POLL_FIELD_NUMBER: _ClassVar[int]
    member: MemberReply
    messages: _containers.RepeatedCompositeFieldContainer[_messages_pb2.Message]
    next: _containers.RepeatedCompositeFieldContainer[Cursor]
    poll: int
    def __init__(self, member: _Optional[_Union[MemberReply, _Mapping]] = ..., messages: _Optional[_Iterable[_Union[_messages_pb2.Message, _Mapping]]] = ..., next: _Optional[_Iterable[_Union[Cursor, _Mapping]]] = ..., poll: _Optional[int] = ...) -> None: ...

class Cursor(_message.Message):
    __slots__ = ("topic", "partition", "offset", "metadata", "committed_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    offset: int
    metadata: str
    committed_ms: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ..., metadata: _Optional[str] = ..., committed_ms: _Optional[int] = ...) -> None: ...

class CommitRequest(_message.Message):
    __slots__ = ("group", "member", "generation", "cursors")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    CURSORS_FIELD_NUMBER: _ClassVar[int]
    group: str
    member: str
    generation: int
    cursors: _containers.RepeatedCompositeFieldContainer[Cursor]
    def __init__(self, group: _Optional[str] = ..., member: _Optional[str] = ..., generation: _Optional[int] = ..., cursors: _Optional[_Iterable[_Union[Cursor, _Mapping]]] = ...) -> None: ...

class CommitReply(_message.Message):
    __slots__ = ("committed", "refused")
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    committed: int
    refused: _containers.RepeatedCompositeFieldContainer[Partitions]
    def __init__(self, committed: _Optional[int] = ..., refused: _Optional[_Iterable[_Union[Partitions, _Mapping]]] = ...) -> None: ...

class ListCursorsRequest(_message.Message):
    __slots__ = ("group",)
    GROUP_FIELD_NUMBER: _ClassVar[int]
    group: str
    def __init__(self, group: _Optional[str] = ...) -> None: ...

class ListCursorsReply(_message.Message):
    __slots__ = ("cursors",)
    CURSORS_FIELD_NUMBER: _ClassVar[int]
    cursors: _containers.RepeatedCompositeFieldContainer[Cursor]
    def __init__(self, cursors: _Optional[_Iterable[_Union[Cursor, _Mapping]]] = ...) -> None: ...

class ResetGroupRequest(_message.Message):
    __slots__ = ("group", "topic", "end", "offset", "time_ms", "partitions", "kind", "dry_run", "create")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TIME_MS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    CREATE_FIELD_NUMBER: _ClassVar[int]
    group: str
    topic: str
    end: End
    offset: int
    time_ms: int
    partitions: _containers.RepeatedScalarFieldContainer[int]
    kind: Kind
    dry_run: bool
    create: bool
    def __init__(self, group: _Optional[str] = ..., topic: _Optional[str] = ..., end: _Optional[_Union[End, str]] = ..., offset: _Optional[int] = ..., time_ms: _Optional[int] = ..., partitions: _Optional[_Iterable[int]] = ..., kind: _Optional[_Union[Kind, str]] = ..., dry_run: _Optional[bool] = ..., create: _Optional[bool] = ...) -> None: ...

class ResetPartition(_message.Message):
    __slots__ = ("topic", "partition", "from_offset", "to_offset", "log_start", "commit_end")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    FROM_OFFSET_FIELD_NUMBER: _ClassVar[int]
    TO_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOG_START_FIELD_NUMBER: _ClassVar[int]
    COMMIT_END_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    from_offset: int
    to_offset: int
    log_start: int
    commit_end: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., from_offset: _Optional[int] = ..., to_offset: _Optional[int] = ..., log_start: _Optional[int] = ..., commit_end: _Optional[int] = ...) -> None: ...

class ResetGroupReply(_message.Message):
    __slots__ = ("partitions", "dry_run")
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[ResetPartition]
    dry_run: bool
    def __init__(self, partitions: _Optional[_Iterable[_Union[ResetPartition, _Mapping]]] = ..., dry_run: _Optional[bool] = ...) -> None: ...

class ListGroupsRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class GroupSummary(_message.Message):
    __slots__ = ("group", "kind", "state", "members", "topics", "lag", "protocol_type")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    LAG_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_TYPE_FIELD_NUMBER: _ClassVar[int]
    group: str
    kind: str
    state: str
    members: int
    topics: _containers.RepeatedScalarFieldContainer[str]
    lag: int
    protocol_type: str
    def __init__(self, group: _Optional[str] = ..., kind: _Optional[str] = ..., state: _Optional[str] = ..., members: _Optional[int] = ..., topics: _Optional[_Iterable[str]] = ..., lag: _Optional[int] = ..., protocol_type: _Optional[str] = ...) -> None: ...

class ListGroupsReply(_message.Message):
    __slots__ = ("groups",)
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedCompositeFieldContainer[GroupSummary]
    def __init__(self, groups: _Optional[_Iterable[_Union[GroupSummary, _Mapping]]] = ...) -> None: ...

class ShowGroupRequest(_message.Message):
    __slots__ = ("group", "topic")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    group: str
    topic: str
    def __init__(self, group: _Optional[str] = ..., topic: _Optional[str] = ...) -> None: ...

class GroupMember(_message.Message):
    __slots__ = ("member", "client", "topics", "session_ms", "joined_ms", "state", "partitions", "revoke")
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    SESSION_MS_FIELD_NUMBER: _ClassVar[int]
    JOINED_MS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    REVOKE_FIELD_NUMBER: _ClassVar[int]
    member: str
    client: str
    topics: _containers.RepeatedScalarFieldContainer[str]
    session_ms: int
    joined_ms: int
    state: str
    partitions: _containers.RepeatedCompositeFieldContainer[Partitions]
    revoke: _containers.RepeatedCompositeFieldContainer[Partitions]
    def __init__(self, member: _Optional[str] = ..., client: _Optional[str] = ..., topics: _Optional[_Iterable[str]] = ..., session_ms: _Optional[int] = ..., joined_ms: _Optional[int] = ..., state: _Optional[str] = ..., partitions: _Optional[_Iterable[_Union[Partitions, _Mapping]]] = ..., revoke: _Optional[_Iterable[_Union[Partitions, _Mapping]]] = ...) -> None: ...

class GroupPartition(_message.Message):
    __slots__ = ("topic", "partition", "offset", "metadata", "owner", "commit_end", "lag", "committed_ms", "target", "pause_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    COMMIT_END_FIELD_NUMBER: _ClassVar[int]
    LAG_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_MS_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    PAUSE_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    offset: int
    metadata: str
    owner: str
    commit_end: int
    lag: int
    committed_ms: int
    target: str
    pause_ms: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ..., metadata: _Optional[str] = ..., owner: _Optional[str] = ..., commit_end: _Optional[int] = ..., lag: _Optional[int] = ..., committed_ms: _Optional[int] = ..., target: _Optional[str] = ..., pause_ms: _Optional[int] = ...) -> None: ...

class GroupPauses(_message.Message):
    __slots__ = ("count", "last_ms", "max_ms", "total_ms")
    COUNT_FIELD_NUMBER: _ClassVar[int]
    LAST_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_MS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_MS_FIELD_NUMBER: _ClassVar[int]
    count: int
    last_ms: int
    max_ms: int
    total_ms: int
    def __init__(self, count: _Optional[int] = ..., last_ms: _Optional[int] = ..., max_ms: _Optional[int] = ..., total_ms: _Optional[int] = ...) -> None: ...

class StreamGroup(_message.Message):
    __slots__ = ("state", "generation", "assignor", "members", "partitions", "lag", "kind", "created_ms", "pauses")
    STATE_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    ASSIGNOR_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    LAG_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    PAUSES_FIELD_NUMBER: _ClassVar[int]
    state: str
    generation: int
    assignor: str
    members: _containers.RepeatedCompositeFieldContainer[GroupMember]
    partitions: _containers.RepeatedCompositeFieldContainer[GroupPartition]
    lag: int
    kind: str
    created_ms: int
    pauses: GroupPauses
    def __init__(self, state: _Optional[str] = ..., generation: _Optional[int] = ..., assignor: _Optional[str] = ..., members: _Optional[_Iterable[_Union[GroupMember, _Mapping]]] = ..., partitions: _Optional[_Iterable[_Union[GroupPartition, _Mapping]]] = ..., lag: _Optional[int] = ..., kind: _Optional[str] = ..., created_ms: _Optional[int] = ..., pauses: _Optional[_Union[GroupPauses, _Mapping]] = ...) -> None: ...

class GroupPolicy(_message.Message):
    __slots__ = ("max_retries", "backoff_ms", "backoff_ms_max", "dead_letters", "ordered")
    MAX_RETRIES_FIELD_NUMBER: _ClassVar[int]
    BACKOFF_MS_FIELD_NUMBER: _ClassVar[int]
    BACKOFF_MS_MAX_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTERS_FIELD_NUMBER: _ClassVar[int]
    ORDERED_FIELD_NUMBER: _ClassVar[int]
    max_retries: int
    backoff_ms: int
    backoff_ms_max: int
    dead_letters: bool
    ordered: bool
    def __init__(self, max_retries: _Optional[int] = ..., backoff_ms: _Optional[int] = ..., backoff_ms_max: _Optional[int] = ..., dead_letters: _Optional[bool] = ..., ordered: _Optional[bool] = ...) -> None: ...

class WorkPartition(_message.Message):
    __slots__ = ("topic", "partition", "floor", "next_offset", "log_start", "lag", "generation", "fresh", "leased", "resting", "ready", "dying", "dead", "policy")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    FLOOR_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOG_START_FIELD_NUMBER: _ClassVar[int]
    LAG_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    FRESH_FIELD_NUMBER: _ClassVar[int]
    LEASED_FIELD_NUMBER: _ClassVar[int]
    RESTING_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    DYING_FIELD_NUMBER: _ClassVar[int]
    DEAD_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    floor: int
    next_offset: int
    log_start: int
    lag: int
    generation: int
    fresh: int
    leased: int
    resting: int
    ready: int
    dying: int
    dead: int
    policy: GroupPolicy
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., floor: _Optional[int] = ..., next_offset: _Optional[int] = ..., log_start: _Optional[int] = ..., lag: _Optional[int] = ..., generation: _Optional[int] = ..., fresh: _Optional[int] = ..., leased: _Optional[int] = ..., resting: _Optional[int] = ..., ready: _Optional[int] = ..., dying: _Optional[int] = ..., dead: _Optional[int] = ..., policy: _Optional[_Union[GroupPolicy, _Mapping]] = ...) -> None: ...

class ShowGroupReply(_message.Message):
    __slots__ = ("group", "stream", "work")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    WORK_FIELD_NUMBER: _ClassVar[int]
    group: str
    stream: StreamGroup
    work: _containers.RepeatedCompositeFieldContainer[WorkPartition]
    def __init__(self, group: _Optional[str] = ..., stream: _Optional[_Union[StreamGroup, _Mapping]] = ..., work: _Optional[_Iterable[_Union[WorkPartition, _Mapping]]] = ...) -> None: ...

class DeleteGroupRequest(_message.Message):
    __slots__ = ("group", "topic")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    group: str
    topic: str
    def __init__(self, group: _Optional[str] = ..., topic: _Optional[str] = ...) -> None: ...

class DeleteGroupReply(_message.Message):
    __slots__ = ("work_partitions",)
    WORK_PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    work_partitions: int
    def __init__(self, work_partitions: _Optional[int] = ...) -> None: ...
