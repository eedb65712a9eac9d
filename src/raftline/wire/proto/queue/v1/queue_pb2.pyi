import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from raftline.wire.proto.types.v1 import types_pb2 as _types_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Action(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ACTION_UNSPECIFIED: _ClassVar[Action]
    ACTION_ADD: _ClassVar[Action]
ACTION_UNSPECIFIED: Action
ACTION_ADD: Action

class CreateTopicRequest(_message.Message):
    __slots__ = ("topic", "number_of_partitions", "replication_factor")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    NUMBER_OF_PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    REPLICATION_FACTOR_FIELD_NUMBER: _ClassVar[int]
    topic: str
    number_of_partitions: int
    replication_factor: int
    def __init__(self, topic: _Optional[str] = ..., number_of_partitions: _Optional[int] = ..., replication_factor: _Optional[int] = ...) -> None: ...

class CreateTopicResponse(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: _types_pb2.Topic
    def __init__(self, topic: _Optional[_Union[_types_pb2.Topic, _Mapping]] = ...) -> None: ...

class SendMessageRequest(_message.Message):
    __slots__ = ("topic", "data", "partition_key")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    PARTITION_KEY_FIELD_NUMBER: _ClassVar[int]
    topic: str
    data: bytes
    partition_key: str
    def __init__(self, topic: _Optional[str] = ..., data: _Optional[bytes] = ..., partition_key: _Optional[str] = ...) -> None: ...

class SendMessageResponse(_message.Message):
    __slots__ = ("message",)
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    message: _types_pb2.Message
    def __init__(self, message: _Optional[_Union[_types_pb2.Message, _Mapping]] = ...) -> None: ...

class ReceiveMessageForPartitionIDRequest(_message.Message):
    __slots__ = ("consumer_id", "partition_id")
    CONSUMER_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    consumer_id: str
    partition_id: str
    def __init__(self, consumer_id: _Optional[str] = ..., partition_id: _Optional[str] = ...) -> None: ...

class ReceiveMessageForPartitionIDResponse(_message.Message):
    __slots__ = ("message",)
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    message: _types_pb2.Message
    def __init__(self, message: _Optional[_Union[_types_pb2.Message, _Mapping]] = ...) -> None: ...

class AckMessageRequest(_message.Message):
    __slots__ = ("consumer_id", "partition_id", "message_id")
    CONSUMER_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    consumer_id: str
    partition_id: str
    message_id: bytes
    def __init__(self, consumer_id: _Optional[str] = ..., partition_id: _Optional[str] = ..., message_id: _Optional[bytes] = ...) -> None: ...

class AckMessageResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ConnectRequest(_message.Message):
    __slots__ = ("consumer_id", "consumer_group", "topics")
    CONSUMER_ID_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    consumer_id: str
    consumer_group: str
    topics: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, consumer_id: _Optional[str] = ..., consumer_group: _Optional[str] = ..., topics: _Optional[_Iterable[str]] = ...) -> None: ...

class ConnectResponse(_message.Message):
    __slots__ = ("consumer", "consumer_group")
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_GROUP_FIELD_NUMBER: _ClassVar[int]
    consumer: _types_pb2.Consumer
    consumer_group: _types_pb2.ConsumerGroup
    def __init__(self, consumer: _Optional[_Union[_types_pb2.Consumer, _Mapping]] = ..., consumer_group: _Optional[_Union[_types_pb2.ConsumerGroup, _Mapping]] = ...) -> None: ...

class HealthCheckRequest(_message.Message):
    __slots__ = ("consumer_id", "ping_at")
    CONSUMER_ID_FIELD_NUMBER: _ClassVar[int]
    PING_AT_FIELD_NUMBER: _ClassVar[int]
    consumer_id: str
    ping_at: _timestamp_pb2.Timestamp
    def __init__(self, consumer_id: _Optional[str] = ..., ping_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class HealthCheckResponse(_message.Message):
    __slots__ = ("message",)
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    message: str
    def __init__(self, message: _Optional[str] = ...) -> None: ...

class ShardInfoRequest(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, topics: _Optional[_Iterable[str]] = ...) -> None: ...

class ShardInfoResponse(_message.Message):
    __slots__ = ("shard_info", "brokers", "leader")
    class ShardInfoEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _types_pb2.ShardInfo
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_types_pb2.ShardInfo, _Mapping]] = ...) -> None: ...
    SHARD_INFO_FIELD_NUMBER: _ClassVar[int]
    BROKERS_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    shard_info: _containers.MessageMap[str, _types_pb2.ShardInfo]
    brokers: _containers.RepeatedCompositeFieldContainer[_types_pb2.Broker]
    leader: _types_pb2.Broker
    def __init__(self, shard_info: _Optional[_Mapping[str, _types_pb2.ShardInfo]] = ..., brokers: _Optional[_Iterable[_Union[_types_pb2.Broker, _Mapping]]] = ..., leader: _Optional[_Union[_types_pb2.Broker, _Mapping]] = ...) -> None: ...

class BrokerAction(_message.Message):
    __slots__ = ("replica_id", "raft_address")
    REPLICA_ID_FIELD_NUMBER: _ClassVar[int]
    RAFT_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    replica_id: int
    raft_address: str
    def __init__(self, replica_id: _Optional[int] = ..., raft_address: _Optional[str] = ...) -> None: ...

class ManageBrokersRequest(_message.Message):
    __slots__ = ("action", "broker_action")
    ACTION_FIELD_NUMBER: _ClassVar[int]
    BROKER_ACTION_FIELD_NUMBER: _ClassVar[int]
    action: Action
    broker_action: BrokerAction
    def __init__(self, action: _Optional[_Union[Action, str]] = ..., broker_action: _Optional[_Union[BrokerAction, _Mapping]] = ...) -> None: ...

class ManageBrokersResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
