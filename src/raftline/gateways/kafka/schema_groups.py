"""Tables of the APIs about groups and their cursors; how to read them: schema.py."""

from raftline.gateways.kafka.schema import VERSION_LAST, Api

FIND_COORDINATOR = Api(
    10,
    "FindCoordinator",
    3,
    """
key       string    0-3
key_type  i8        1+
keys      []string  4+
""",
    """
throttle_ms      i32     1+
error_code       i16     0-3
error_message    string  1-3 ?1+
node_id          i32     0-3
host             string  0-3
port             i32     0-3
coordinators     []      4+
  key            string  4+
  node_id        i32     4+
  host           string  4+
  port           i32     4+
  error_code     i16     4+
  error_message  string  4+ ?4+
""",
)

JOIN_GROUP = Api(
    11,
    "JoinGroup",
    6,
    """
group          string  0+
session_ms     i32     0+
rebalance_ms   i32     1+ =-1
member         string  0+
instance       string  5+ ?5+ =null
protocol_type  string  0+
protocols      []      0+
  name         string  0+
  metadata     bytes   0+
reason         string  8+ ?8+ =null
""",
    """
throttle_ms      i32     2+
error_code       i16     0+
generation       i32     0+ =-1
protocol_type    string  7+ ?7+ =null
protocol         string  0+ ?7+
leader           string  0+
skip_assignment  bool    9+
member           string  0+
members          []      0+
  member         string  0+
  instance       string  5+ ?5+ =null
  metadata       bytes   0+
""",
)

SYNC_GROUP = Api(
    14,
    "SyncGroup",
    4,
    """
group          string  0+
generation     i32     0+
member         string  0+
instance       string  3+ ?3+ =null
protocol_type  string  5+ ?5+ =null
protocol       string  5+ ?5+ =null
assignments    []      0+
  member       string  0+
  assignment   bytes   0+
""",
    """
throttle_ms    i32     1+
error_code     i16     0+
protocol_type  string  5+ ?5+ =null
protocol       string  5+ ?5+ =null
assignment     bytes   0+
""",
)

HEARTBEAT = Api(
    12,
    "Heartbeat",
    4,
    """
group       string  0+
generation  i32     0+
member      string  0+
instance    string  3+ ?3+ =null
""",
    """
throttle_ms  i32  1+
error_code   i16  0+
""",
)

LEAVE_GROUP = Api(
    13,
    "LeaveGroup",
    4,
    """
group       string  0+
member      string  0-2
members     []      3+
  member    string  3+
  instance  string  3+ ?3+ =null
  reason    string  5+ ?5+ =null
""",
    """
throttle_ms   i32     1+
error_code    i16     0+
members       []      3+
  member      string  3+
  instance    string  3+ ?3+
  error_code  i16     3+
""",
)

OFFSET_COMMIT = Api(
    8,
    "OffsetCommit",
    8,
    """
group                 string  0+
generation            i32     1+ =-1
member                string  1+
instance              string  7+ ?7+ =null
retention_time_ms     i64     2-4 =-1
topics                []      0+
  name                string  0-9
  topic_id            uuid    10+
  partitions          []      0+
    partition         i32     0+
    offset            i64     0+
    leader_epoch      i32     6+ =-1
    commit_timestamp  i64     1 =-1
    metadata          string  0+ ?0+
""",
    """
throttle_ms     i32     3+
topics          []      0+
  name          string  0-9
  topic_id      uuid    10+
  partitions    []      0+
    partition   i32     0+
    error_code  i16     0+
""",
)

OFFSET_FETCH = Api(
    9,
    "OffsetFetch",
    6,
    """
group           string  0-7
topics          []      0-7 ?2+
  name          string  0-7
  partitions    []i32   0-7
groups          []      8+
  group         string  8+
  member        string  9+ ?9+ =null
  member_epoch  i32     9+ =-1
  topics        []      8+ ?8+
    name        string  8-9
    topic_id    uuid    10+
    partitions  []i32   8+
require_stable  bool    7+
""",
    """
throttle_ms         i32     3+
topics              []      0-7
  name              string  0-7
  partitions        []      0-7
    partition       i32     0-7
    offset          i64     0-7
    leader_epoch    i32     5-7 =-1
    metadata        string  0-7 ?0+
    error_code      i16     0-7
error_code          i16     2-7
groups              []      8+
  group             string  8+
  topics            []      8+
    name            string  8-9
    topic_id        uuid    10+
    partitions      []      8+
      partition     i32     8+
      offset        i64     8+
      leader_epoch  i32     8+ =-1
      metadata      string  8+ ?8+
      error_code    i16     8+
  error_code        i16     8+
""",
)

OFFSET_DELETE = Api(
    47,
    "OffsetDelete",
    VERSION_LAST,
    """
group          string  0+
topics         []      0+
  name         string  0+
  partitions   []      0+
    partition  i32     0+
""",
    """
error_code      i16     0+
throttle_ms     i32     0+
topics          []      0+
  name          string  0+
  partitions    []      0+
    partition   i32     0+
    error_code  i16     0+
""",
)

DESCRIBE_GROUPS = Api(
    15,
    "DescribeGroups",
    5,
    """
groups                         []string  0+
include_authorized_operations  bool      3+
""",
    """
throttle_ms              i32     1+
groups                   []      0+
  error_code             i16     0+
  error_message          string  6+ ?6+ =null
  group                  string  0+
  state                  string  0+
  protocol_type          string  0+
  protocol               string  0+
  members                []      0+
    member               string  0+
    instance             string  4+ ?4+ =null
    client_id            string  0+
    client_host          string  0+
    metadata             bytes   0+
    assignment           bytes   0+
  authorized_operations  i32     3+ =-2147483648
""",
)

LIST_GROUPS = Api(
    16,
    "ListGroups",
    3,
    """
states_filter  []string  4+
types_filter   []string  5+
""",
    """
throttle_ms      i32     1+
error_code       i16     0+
groups           []      0+
  group          string  0+
  protocol_type  string  0+
  state          string  4+
  type           string  5+
""",
)

DELETE_GROUPS = Api(
    42,
    "DeleteGroups",
    2,
    """
groups  []string  0+
""",
    """
throttle_ms   i32     0+
results       []      0+
  group       string  0+
  error_code  i16     0+
""",
)
