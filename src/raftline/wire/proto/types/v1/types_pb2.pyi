import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ShardType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SHARD_TYPE_UNSPECIFIED: _ClassVar[ShardType]
    SHARD_TYPE_BROKERS: _ClassVar[ShardType]
    SHARD_TYPE_PARTITIONS: _ClassVar[ShardType]
SHARD_TYPE_UNSPECIFIED: ShardType
SHARD_TYPE_BROKERS: ShardType
SHARD_TYPE_PARTITIONS: ShardType

class Broker(_message.Message):
    __slots__ = ("id", "raft_address", "reach_grpc_address", "reach_http_address")
    ID_FIELD_NUMBER: _ClassVar[int]
    RAFT_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    REACH_GRPC_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    REACH_HTTP_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    id: int
    raft_address: str
    reach_grpc_address: str
    reach_http_address: str
    def __init__(self, id: _Optional[int] = ..., raft_address: _Optional[str] = ..., reach_grpc_address: _Optional[str] = ..., reach_http_address: _Optional[str] = ...) -> None: ...

class Consumer(_message.Message):
    __slots__ = ("id", "partitions", "consumer_group", "topics", "is_active", "last_health_check_at")
    ID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    IS_ACTIVE_FIELD_NUMBER: _ClassVar[int]
    LAST_HEALTH_CHECK_AT_FIELD_NUMBER: _ClassVar[int]
    id: str
    partitions: _containers.RepeatedScalarFieldContainer[str]
    consumer_group: str
    topics: _containers.RepeatedScalarFieldContainer[str]
    is_active: bool
    last_health_check_at: _timestamp_pb2.Timestamp
    def __init__(self, id: _Optional[str] = ..., partitions: _Optional[_Iterable[str]] = ..., consumer_group: _Optional[str] = ..., topics: _Optional[_Iterable[str]] = ..., is_active: _Optional[bool] = ..., last_health_check_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class ConsumerGroup(_message.Message):
    __slots__ = ("id", "consumers", "topics")
    ID_FIELD_NUMBER: _ClassVar[int]
    CONSUMERS_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    id: str
    consumers: _containers.RepeatedScalarFieldContainer[str]
    topics: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, id: _Optional[str] = ..., consumers: _Optional[_Iterable[str]] = ..., topics: _Optional[_Iterable[str]] = ...) -> None: ...

class Message(_message.Message):
    __slots__ = ("topic", "partition_key", "partition_id", "data", "id")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_KEY_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition_key: str
    partition_id: str
    data: bytes
    id: bytes
    def __init__(self, topic: _Optional[str] = ..., partition_key: _Optional[str] = ..., partition_id: _Optional[str] = ..., data: _Optional[bytes] = ..., id: _Optional[bytes] = ...) -> None: ...

class Topic(_message.Message):
    __slots__ = ("topic", "num_of_partitions")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    NUM_OF_PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    num_of_partitions: int
    def __init__(self, topic: _Optional[str] = ..., num_of_partitions: _Optional[int] = ...) -> None: ...

class ShardInfo(_message.Message):
    __slots__ = ("shard_type", "shard_id", "topic", "partition_id", "brokers")
    SHARD_TYPE_FIELD_NUMBER: _ClassVar[int]
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    BROKERS_FIELD_NUMBER: _ClassVar[int]
    shard_type: ShardType
    shard_id: int
    topic: str
    partition_id: str
    brokers: _containers.RepeatedCompositeFieldContainer[Broker]
    def __init__(self, shard_type: _Optional[_Union[ShardType, str]] = ..., shard_id: _Optional[int] = ..., topic: _Optional[str] = ..., partition_id: _Optional[str] = ..., brokers: _Optional[_Iterable[_Union[Broker, _Mapping]]] = ...) -> None: ...
