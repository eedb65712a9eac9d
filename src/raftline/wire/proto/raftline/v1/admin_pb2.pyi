from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Setting(_message.Message):
    __slots__ = ("text", "number", "flag")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    FLAG_FIELD_NUMBER: _ClassVar[int]
    text: str
    number: int
    flag: bool
    def __init__(self, text: _Optional[str] = ..., number: _Optional[int] = ..., flag: _Optional[bool] = ...) -> None: ...

class CreateTopicRequest(_message.Message):
    __slots__ = ("name", "partitions", "replication_factor", "settings")
    class SettingsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Setting
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Setting, _Mapping]] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    REPLICATION_FACTOR_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    name: str
    partitions: int
    replication_factor: int
    settings: _containers.MessageMap[str, Setting]
    def __init__(self, name: _Optional[str] = ..., partitions: _Optional[int] = ..., replication_factor: _Optional[int] = ..., settings: _Optional[_Mapping[str, Setting]] = ...) -> None: ...

class CreateTopicReply(_message.Message):
    __slots__ = ("name", "partitions")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    name: str
    partitions: int
    def __init__(self, name: _Optional[str] = ..., partitions: _Optional[int] = ...) -> None: ...

class ListTopicsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListTopicsReply(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[Topic]
    def __init__(self, topics: _Optional[_Iterable[_Union[Topic, _Mapping]]] = ...) -> None: ...

class ShowTopicRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class EnsureTopicRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class Partition(_message.Message):
    __slots__ = ("partition", "shard", "leader", "term", "replicas", "learners", "log_start", "commit_end", "bytes", "state", "archived")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    SHARD_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    LEARNERS_FIELD_NUMBER: _ClassVar[int]
    LOG_START_FIELD_NUMBER: _ClassVar[int]
    COMMIT_END_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    ARCHIVED_FIELD_NUMBER: _ClassVar[int]
    partition: int
    shard: int
    leader: int
    term: int
    replicas: _containers.RepeatedScalarFieldContainer[int]
    learners: _containers.RepeatedScalarFieldContainer[int]
    log_start: int
    commit_end: int
    bytes: int
    state: str
    archived: int
    def __init__(self, partition: _Optional[int] = ..., shard: _Optional[int] = ..., leader: _Optional[int] = ..., term: _Optional[int] = ..., replicas: _Optional[_Iterable[int]] = ..., learners: _Optional[_Iterable[int]] = ..., log_start: _Optional[int] = ..., commit_end: _Optional[int] = ..., bytes: _Optional[int] = ..., state: _Optional[str] = ..., archived: _Optional[int] = ...) -> None: ...

class Topic(_message.Message):
    __slots__ = ("name", "uuid", "replication_factor", "created_ms", "settings", "partitions")
    class SettingsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Setting
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Setting, _Mapping]] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    UUID_FIELD_NUMBER: _ClassVar[int]
    REPLICATION_FACTOR_FIELD_NUMBER: _ClassVar[int]
    CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    name: str
    uuid: str
    replication_factor: int
    created_ms: int
    settings: _containers.MessageMap[str, Setting]
    partitions: _containers.RepeatedCompositeFieldContainer[Partition]
    def __init__(self, name: _Optional[str] = ..., uuid: _Optional[str] = ..., replication_factor: _Optional[int] = ..., created_ms: _Optional[int] = ..., settings: _Optional[_Mapping[str, Setting]] = ..., partitions: _Optional[_Iterable[_Union[Partition, _Mapping]]] = ...) -> None: ...

class SetTopicRequest(_message.Message):
    __slots__ = ("name", "settings", "partitions")
    class SettingsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Setting
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Setting, _Mapping]] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    name: str
    settings: _containers.MessageMap[str, Setting]
    partitions: int
    def __init__(self, name: _Optional[str] = ..., settings: _Optional[_Mapping[str, Setting]] = ..., partitions: _Optional[int] = ...) -> None: ...

class SetTopicReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DeleteTopicRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class DeleteTopicReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class TrimTopicRequest(_message.Message):
    __slots__ = ("name", "partition", "offset")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    name: str
    partition: int
    offset: int
    def __init__(self, name: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class TrimTopicReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class NewProducerRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class NewProducerReply(_message.Message):
    __slots__ = ("producer_id", "epoch")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    epoch: int
    def __init__(self, producer_id: _Optional[int] = ..., epoch: _Optional[int] = ...) -> None: ...

class ListShardsRequest(_message.Message):
    __slots__ = ("topics", "all")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    ALL_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedScalarFieldContainer[str]
    all: bool
    def __init__(self, topics: _Optional[_Iterable[str]] = ..., all: _Optional[bool] = ...) -> None: ...

class Shard(_message.Message):
    __slots__ = ("topic", "partition", "shard", "leader", "replicas")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    SHARD_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    shard: int
    leader: int
    replicas: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., shard: _Optional[int] = ..., leader: _Optional[int] = ..., replicas: _Optional[_Iterable[int]] = ...) -> None: ...

class ListShardsReply(_message.Message):
    __slots__ = ("shards", "nodes")
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    shards: _containers.RepeatedCompositeFieldContainer[Shard]
    nodes: _containers.RepeatedCompositeFieldContainer[Node]
    def __init__(self, shards: _Optional[_Iterable[_Union[Shard, _Mapping]]] = ..., nodes: _Optional[_Iterable[_Union[Node, _Mapping]]] = ...) -> None: ...

class ShowClusterRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Node(_message.Message):
    __slots__ = ("id", "name", "rack", "peer", "http", "grpc", "kafka", "state", "free_bytes", "clock_offset_ms")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    RACK_FIELD_NUMBER: _ClassVar[int]
    PEER_FIELD_NUMBER: _ClassVar[int]
    HTTP_FIELD_NUMBER: _ClassVar[int]
    GRPC_FIELD_NUMBER: _ClassVar[int]
    KAFKA_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    FREE_BYTES_FIELD_NUMBER: _ClassVar[int]
    CLOCK_OFFSET_MS_FIELD_NUMBER: _ClassVar[int]
    id: int
    name: str
    rack: str
    peer: str
    http: str
    grpc: str
    kafka: str
    state: str
    free_bytes: int
    clock_offset_ms: int
    def __init__(self, id: _Optional[int] = ..., name: _Optional[str] = ..., rack: _Optional[str] = ..., peer: _Optional[str] = ..., http: _Optional[str] = ..., grpc: _Optional[str] = ..., kafka: _Optional[str] = ..., state: _Optional[str] = ..., free_bytes: _Optional[int] = ..., clock_offset_ms: _Optional[int] = ...) -> None: ...

class ClusterReply(_message.Message):
    __slots__ = ("cluster", "node", "name", "ready", "reason", "catalog_leader", "catalog_version", "nodes", "shards", "leaderless", "quarantined", "wal_bytes", "free_bytes", "uptime_ms", "topics")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    CATALOG_LEADER_FIELD_NUMBER: _ClassVar[int]
    CATALOG_VERSION_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    LEADERLESS_FIELD_NUMBER: _ClassVar[int]
    QUARANTINED_FIELD_NUMBER: _ClassVar[int]
    WAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    FREE_BYTES_FIELD_NUMBER: _ClassVar[int]
    UPTIME_MS_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    node: int
    name: str
    ready: bool
    reason: str
    catalog_leader: int
    catalog_version: int
    nodes: _containers.RepeatedCompositeFieldContainer[Node]
    shards: int
    leaderless: _containers.RepeatedScalarFieldContainer[str]
    quarantined: _containers.RepeatedScalarFieldContainer[str]
    wal_bytes: int
    free_bytes: int
    uptime_ms: int
    topics: _containers.RepeatedCompositeFieldContainer[Topic]
    def __init__(self, cluster: _Optional[str] = ..., node: _Optional[int] = ..., name: _Optional[str] = ..., ready: _Optional[bool] = ..., reason: _Optional[str] = ..., catalog_leader: _Optional[int] = ..., catalog_version: _Optional[int] = ..., nodes: _Optional[_Iterable[_Union[Node, _Mapping]]] = ..., shards: _Optional[int] = ..., leaderless: _Optional[_Iterable[str]] = ..., quarantined: _Optional[_Iterable[str]] = ..., wal_bytes: _Optional[int] = ..., free_bytes: _Optional[int] = ..., uptime_ms: _Optional[int] = ..., topics: _Optional[_Iterable[_Union[Topic, _Mapping]]] = ...) -> None: ...

class VerifyRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ReplicaDigest(_message.Message):
    __slots__ = ("node", "log_start", "commit_end", "log", "state", "error")
    NODE_FIELD_NUMBER: _ClassVar[int]
    LOG_START_FIELD_NUMBER: _ClassVar[int]
    COMMIT_END_FIELD_NUMBER: _ClassVar[int]
    LOG_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    node: int
    log_start: int
    commit_end: int
    log: str
    state: str
    error: str
    def __init__(self, node: _Optional[int] = ..., log_start: _Optional[int] = ..., commit_end: _Optional[int] = ..., log: _Optional[str] = ..., state: _Optional[str] = ..., error: _Optional[str] = ...) -> None: ...

class VerifiedShard(_message.Message):
    __slots__ = ("name", "identical", "replicas")
    NAME_FIELD_NUMBER: _ClassVar[int]
    IDENTICAL_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    name: str
    identical: bool
    replicas: _containers.RepeatedCompositeFieldContainer[ReplicaDigest]
    def __init__(self, name: _Optional[str] = ..., identical: _Optional[bool] = ..., replicas: _Optional[_Iterable[_Union[ReplicaDigest, _Mapping]]] = ...) -> None: ...

class VerifyReply(_message.Message):
    __slots__ = ("identical", "shards")
    IDENTICAL_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    identical: bool
    shards: _containers.RepeatedCompositeFieldContainer[VerifiedShard]
    def __init__(self, identical: _Optional[bool] = ..., shards: _Optional[_Iterable[_Union[VerifiedShard, _Mapping]]] = ...) -> None: ...

class AddNodeRequest(_message.Message):
    __slots__ = ("name", "address")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    name: str
    address: str
    def __init__(self, name: _Optional[str] = ..., address: _Optional[str] = ...) -> None: ...

class RemoveNodeRequest(_message.Message):
    __slots__ = ("node", "force")
    NODE_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    node: str
    force: bool
    def __init__(self, node: _Optional[str] = ..., force: _Optional[bool] = ...) -> None: ...

class ReplaceNodeRequest(_message.Message):
    __slots__ = ("node", "by")
    NODE_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    node: str
    by: str
    def __init__(self, node: _Optional[str] = ..., by: _Optional[str] = ...) -> None: ...

class MoveReplicaRequest(_message.Message):
    __slots__ = ("topic", "partition", "from_node", "to_node")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    FROM_NODE_FIELD_NUMBER: _ClassVar[int]
    TO_NODE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    from_node: str
    to_node: str
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., from_node: _Optional[str] = ..., to_node: _Optional[str] = ...) -> None: ...

class TransferLeaderRequest(_message.Message):
    __slots__ = ("topic", "partition", "to_node")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    TO_NODE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    to_node: str
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., to_node: _Optional[str] = ...) -> None: ...

class ChangeReply(_message.Message):
    __slots__ = ("told",)
    class ToldEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TOLD_FIELD_NUMBER: _ClassVar[int]
    told: _containers.ScalarMap[str, str]
    def __init__(self, told: _Optional[_Mapping[str, str]] = ...) -> None: ...
