"""Tables of the APIs that look at and change the cluster; how to read them: schema.py."""

from raftline.gateways.kafka.schema import Api

CREATE_TOPICS = Api(
    19,
    "CreateTopics",
    5,
    """
topics                []      0+
  name                string  0+
  num_partitions      i32     0+
  replication_factor  i16     0+
  assignments         []      0+
    partition         i32     0+
    nodes             []i32   0+
  configs             []      0+
    name              string  0+
    value             string  0+ ?0+
timeout_ms            i32     0+ =60000
validate_only         bool    1+
""",
    """
throttle_ms                i32     2+
topics                     []      0+
  name                     string  0+
  topic_id                 uuid    7+
  error_code               i16     0+
  error_message            string  1+ ?0+
  topic_config_error_code  i16     5+ #0
  num_partitions           i32     5+ =-1
  replication_factor       i16     5+ =-1
  configs                  []      5+ ?5+
    name                   string  5+
    value                  string  5+ ?5+
    read_only              bool    5+
    config_source          i8      5+ =-1
    is_sensitive           bool    5+
""",
)

DELETE_TOPICS = Api(
    20,
    "DeleteTopics",
    4,
    """
topics      []        6+
  name      string    6+ ?6+ =null
  topic_id  uuid      6+
names       []string  0-5
timeout_ms  i32       0+
""",
    """
throttle_ms      i32     1+
responses        []      0+
  name           string  0+ ?6+
  topic_id       uuid    6+
  error_code     i16     0+
  error_message  string  5+ ?5+ =null
""",
)

CREATE_PARTITIONS = Api(
    37,
    "CreatePartitions",
    2,
    """
topics         []      0+
  name         string  0+
  count        i32     0+
  assignments  []      0+ ?0+
    nodes      []i32   0+
timeout_ms     i32     0+
validate_only  bool    0+
""",
    """
throttle_ms      i32     0+
results          []      0+
  name           string  0+
  error_code     i16     0+
  error_message  string  0+ ?0+ =null
""",
)

DELETE_RECORDS = Api(
    21,
    "DeleteRecords",
    2,
    """
topics         []      0+
  name         string  0+
  partitions   []      0+
    partition  i32     0+
    offset     i64     0+
timeout_ms     i32     0+
""",
    """
throttle_ms        i32     0+
topics             []      0+
  name             string  0+
  partitions       []      0+
    partition      i32     0+
    low_watermark  i64     0+
    error_code     i16     0+
""",
)

DESCRIBE_CONFIGS = Api(
    32,
    "DescribeConfigs",
    4,
    """
resources              []        0+
  resource_type        i8        0+
  resource_name        string    0+
  keys                 []string  0+ ?0+
include_synonyms       bool      1+
include_documentation  bool      3+
""",
    """
throttle_ms        i32     0+
results            []      0+
  error_code       i16     0+
  error_message    string  0+ ?0+
  resource_type    i8      0+
  resource_name    string  0+
  configs          []      0+
    name           string  0+
    value          string  0+ ?0+
    read_only      bool    0+
    config_source  i8      1+ =-1
    is_default     bool    0
    is_sensitive   bool    0+
    synonyms       []      1+
      name         string  1+
      value        string  1+ ?0+
      source       i8      1+
    config_type    i8      3+
    documentation  string  3+ ?0+
""",
)

ALTER_CONFIGS = Api(
    33,
    "AlterConfigs",
    2,
    """
resources        []      0+
  resource_type  i8      0+
  resource_name  string  0+
  configs        []      0+
    name         string  0+
    value        string  0+ ?0+
validate_only    bool    0+
""",
    """
throttle_ms      i32     0+
responses        []      0+
  error_code     i16     0+
  error_message  string  0+ ?0+
  resource_type  i8      0+
  resource_name  string  0+
""",
)

INCREMENTAL_ALTER_CONFIGS = Api(
    44,
    "IncrementalAlterConfigs",
    1,
    """
resources        []      0+
  resource_type  i8      0+
  resource_name  string  0+
  configs        []      0+
    name         string  0+
    operation    i8      0+
    value        string  0+ ?0+
validate_only    bool    0+
""",
    """
throttle_ms      i32     0+
responses        []      0+
  error_code     i16     0+
  error_message  string  0+ ?0+
  resource_type  i8      0+
  resource_name  string  0+
""",
)

DESCRIBE_CLUSTER = Api(
    60,
    "DescribeCluster",
    0,
    """
include_cluster_authorized_operations  bool  0+
endpoint_type                          i8    1+ =1
include_fenced_brokers                 bool  2+
""",
    """
throttle_ms                    i32     0+
error_code                     i16     0+
error_message                  string  0+ ?0+ =null
endpoint_type                  i8      1+ =1
cluster_id                     string  0+
controller_id                  i32     0+ =-1
brokers                        []      0+
  broker_id                    i32     0+
  host                         string  0+
  port                         i32     0+
  rack                         string  0+ ?0+ =null
  is_fenced                    bool    2+
cluster_authorized_operations  i32     0+ =-2147483648
""",
)

DESCRIBE_TOPIC_PARTITIONS = Api(
    75,
    "DescribeTopicPartitions",
    0,
    """
topics                    []      0+
  name                    string  0+
response_partition_limit  i32     0+ =2000
cursor                    {}      0+ ?0+ =null
  topic_name              string  0+
  partition               i32     0+
""",
    """
throttle_ms                    i32     0+
topics                         []      0+
  error_code                   i16     0+
  name                         string  0+ ?0+
  topic_id                     uuid    0+
  is_internal                  bool    0+
  partitions                   []      0+
    error_code                 i16     0+
    partition                  i32     0+
    leader_id                  i32     0+
    leader_epoch               i32     0+ =-1
    replicas                   []i32   0+
    isr                        []i32   0+
    eligible_leader_replicas   []i32   0+ ?0+ =null
    last_known_elr             []i32   0+ ?0+ =null
    offline_replicas           []i32   0+
  topic_authorized_operations  i32     0+ =-2147483648
next_cursor                    {}      0+ ?0+ =null
  topic_name                   string  0+
  partition                    i32     0+
""",
)

DESCRIBE_LOG_DIRS = Api(
    35,
    "DescribeLogDirs",
    2,
    """
topics        []      0+ ?0+
  topic       string  0+
  partitions  []i32   0+
""",
    """
throttle_ms          i32     0+
error_code           i16     3+
results              []      0+
  error_code         i16     0+
  log_dir            string  0+
  topics             []      0+
    name             string  0+
    partitions       []      0+
      partition      i32     0+
      size           i64     0+
      offset_lag     i64     0+
      is_future_key  bool    0+
  total_bytes        i64     4+ =-1
  usable_bytes       i64     4+ =-1
  is_cordoned        bool    5+
""",
)

ELECT_LEADERS = Api(
    43,
    "ElectLeaders",
    2,
    """
election_type  i8      1+
topics         []      0+ ?0+
  topic        string  0+
  partitions   []i32   0+
timeout_ms     i32     0+ =60000
""",
    """
throttle_ms        i32     0+
error_code         i16     1+
topics             []      0+
  topic            string  0+
  partitions       []      0+
    partition      i32     0+
    error_code     i16     0+
    error_message  string  0+ ?0+
""",
)
