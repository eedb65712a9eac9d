"""Every bound, and how the bounds relate.

A queue, a name, a wait or a buffer without a row here is a mistake. Settings may lower a bound;
none may raise it past what this file states. The asserts at the end are the relations that other
code relies on.
"""

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB
GB = 1000**3
SECOND_MS = 1000
HOUR_MS = 3600 * SECOND_MS

# Names.
TOPIC_NAME_CHARS_MAX = 249
NODE_NAME_CHARS_MAX = 249
RACK_CHARS_MAX = 249
ADDRESS_CHARS_MAX = 300

# Messages and batches.
KEY_BYTES_MAX = 64 * KIB
HEADERS_MAX = 100  # headers of one message
HEADER_BYTES_MAX = 64 * KIB  # names and values of one message's headers, together
BATCH_HEADER_BYTES = 61
BATCH_BYTES_MAX = 12 * MIB  # one sealed batch: a message of 10 MB that does not compress fits
BATCH_MESSAGES_MAX = 1_000_000  # offsets one batch may take
BATCH_DECODED_BYTES_MAX = 64 * MIB  # what a compressed batch may unpack to
OFFSET_MAX = (1 << 62) - 1
SEQUENCE_MODULUS = 1 << 31  # producer sequences wrap: 2^31 - 1 is followed by 0
PRODUCER_NAME_CHARS_MAX = 249
PRIORITY_MIN = -128
PRIORITY_MAX = 127

# Entries and rpcs.
ENTRY_BYTES_MAX = 16 * MIB  # data of one entry
ENTRY_BATCHES_MAX = 4096  # batches in one Append
EXTENSION_BYTES_MAX = 1 * MIB  # extension section of one Append
RPC_ENTRIES_BYTES_MAX = 16 * MIB  # entries in one rpc (at least one entry always goes)
RPC_INFLIGHT_MAX = 256  # unanswered appends to one replica
RPC_INFLIGHT_BYTES_MAX = 32 * MIB
FRAME_BYTES_MAX = 64 * MIB  # one frame between nodes
LINK_QUEUE_BYTES_MAX = 128 * MIB  # unsent bytes to one peer, then frames are dropped
SNAPSHOT_CHUNK_BYTES_MAX = 1 * MIB

# In flight.
SHARD_UNCOMMITTED_BYTES_MAX = 32 * MIB
NODE_UNCOMMITTED_BYTES_MAX = 256 * MIB
CONNECTION_INFLIGHT_BYTES_MAX = 16 * MIB  # then the gateway stops reading that socket
PARKED_READS_MAX = 10_000  # long polls waiting on one node
READ_BYTES_MAX = 32 * MIB  # batches in one reply
READ_BYTES_DEFAULT = 1 * MIB
REQUEST_BYTES_MAX = 32 * MIB  # one request to a gateway
CONNECTIONS_MAX = 10_000
FORWARDED_MAX = 10_000  # calls waiting for another node

# Waits.
WAIT_MS_MAX = 60 * SECOND_MS  # longest long poll and longest call timeout
TIMEOUT_MS_DEFAULT = 15 * SECOND_MS

# Catalog.
NODES_MAX = 1000
TOPICS_MAX = 100_000
PARTITIONS_PER_TOPIC_MAX = 10_000
PARTITIONS_MAX = 100_000  # in one cluster
PARTITIONS_DEFAULT = 6
REPLICATION_FACTOR_MAX = 9
REPLICATION_FACTOR_DEFAULT = 3  # or the number of members where they are fewer
CATALOG_VOTERS = 3
PRODUCERS_ALLOCATED_MAX = 10_000  # ids in one AllocateProducers
TOMBSTONES_MAX = 10_000  # deleted shards remembered; the oldest are forgotten
SETTINGS_TEXT_CHARS_MAX = 1000  # a setting whose value is text

# Partitions.
PRODUCERS_MAX = 10_000  # producers one partition remembers; the longest silent is forgotten first
PRODUCER_BATCHES = 5  # batches per producer a repeat is recognised in (Kafka clients keep <= 5)
PRODUCER_EXPIRE_MS = 24 * HOUR_MS  # silence in log time after which a producer is forgotten
PRODUCER_EXPIRE_PER_APPLY = 16  # forgotten per entry at most: apply stays bounded

STREAMS_MAX = 20_000  # streams into one partition; the longest unused is forgotten first
LETTER_RANGES_MAX = 100_000  # ranges of dead letters done with, in one partition
LETTER_MARKS_MAX = 10_000  # ranges in one MarkLetters
LETTERS_PER_CALL_MAX = 1_000  # dead letters one call lists, redrives or purges
PIECE_BYTES_MAX = BATCH_BYTES_MAX + 128 * KIB  # one piece of a stream: the largest message, told of

DEDUP_KEYS_MAX = 1_000_000  # dedup keys one partition remembers; then it refuses, never forgets
DEDUP_MS_MAX = 30 * 24 * HOUR_MS  # longest dedup window
DEDUP_EXPIRE_PER_APPLY = 64  # keys forgotten per entry at most, and two for each new one
DEDUP_KEY_BYTES_MAX = 1024  # a dedup key as a client writes it
DEDUP_KEYS_PER_BATCH_MAX = 10_000
PRIORITY_RUNS_PER_BATCH_MAX = 10_000

# Groups.
GROUP_NAME_CHARS_MAX = 249
GROUPS_PER_SHARD_MAX = 2_000  # stream groups of one coordination shard
GROUP_MEMBERS_MAX = 1_000
GROUP_TOPICS_MAX = 100  # topics one group knows: subscribed to, or with a cursor
GROUP_PARTITIONS_MAX = 10_000  # partitions of those topics together
GROUP_IDLE_MS = 7 * 24 * HOUR_MS  # without members and commits: then its cursors are dropped
MEMBER_ID_CHARS_MAX = 249
CLIENT_ID_CHARS_MAX = 249
CURSOR_TEXT_CHARS_MAX = 4096  # metadata kept with a cursor
SESSION_MS_DEFAULT = 30 * SECOND_MS
SESSION_MS_MIN = 1 * SECOND_MS
SESSION_MS_MAX = HOUR_MS
REVOKE_MS_DEFAULT = 60 * SECOND_MS  # to give up a revoked partition, then the member is expired
COORDINATION_VOTERS = 3
CLASSIC_PROTOCOLS_MAX = 20  # assignors one member of a classic group offers
CLASSIC_METADATA_BYTES_MAX = 512 * KIB  # what one member tells of itself, for all of them
CLASSIC_GROUP_BYTES_MAX = 4 * MIB  # what all members tell, and what their leader assigns

# Work groups.
DELIVER_COMMANDS_MAX = 10_000  # delivery commands in one entry, and settles in one request
DELIVER_BYTES_MAX = 8 * MIB  # settles in one request, as the leader weighs them
RECEIVE_COUNT_MAX = 10_000  # messages of one receive
RECEIVERS_PARKED_MAX = 10_000  # receivers of one group that wait at one partition
WAIT_BOUND_MS = 30 * SECOND_MS  # a message that waited longer goes before any higher lane
LEASE_MS_MIN = 100
REASON_CHARS_MAX = 1_000  # of a nack or reject; shown with the dead letter
LEASE_MS_MAX = 12 * HOUR_MS
WORK_GROUPS_MAX = 1000  # work groups of one partition
RETRIES_MAX = 1_000_000
BACKOFF_MS_MAX = 24 * HOUR_MS
NACK_DELAY_MS_MAX = 168 * HOUR_MS
NACK_REASON_CHARS_MAX = 1000  # longer ones are cut
DELIVERY_MEMBERS_MAX = 10_000  # names of members with a lease, per group; the rest stay nameless
DELIVERY_ERRORS_MAX = 1_000  # reasons of nacks kept, per group and in an outbox; the rest are lost
EXPIRE_ROWS_MAX = 500  # leases and backoffs that end in one entry (10 ms); the rest at the next
SETTLE_ROWS_MAX = 20_000  # rows one command may look at; what is behind is refused or left

WAITING_NUMBERS_MAX = 4096  # numbers in one Cancel or Release
RELEASE_MESSAGES_MAX = 500  # messages a leader puts into one Release: a turn applies a few of them
RELEASE_BYTES_MAX = 1 * MIB
RELEASES_INFLIGHT_MAX = 4
RELEASE_RUNS_MAX = 1 << 18  # runs of released messages whose numbers still lead to their offsets
CANCELLED_RANGES_MAX = 1 << 16  # ranges of cancelled numbers one partition remembers

# Queries: jobs that write and lease in numbered batches (Spark).
QUERY_NAME_CHARS_MAX = 249
QUERIES_MAX = 10_000  # whose fences one partition keeps; then new ones are refused
FENCE_EXPIRE_MS = 30 * 24 * HOUR_MS  # a query without a word for so long is forgotten
STAGE_CHUNKS_MAX = 20_000  # chunks one query may have staged in one partition
STAGE_BYTES_MAX = 4 * GIB  # bytes of them
STAGE_SPAN_BYTES_MAX = 16 * GIB  # the stage log from its oldest chunk on; then the idle give way
STAGE_IDLE_MS = 600 * SECOND_MS  # a query without a word for so long gives way
STAGE_DUE_MESSAGES_MAX = 4096  # messages of one chunk that are to wait, all of one
STAGE_DUE_BYTES_MAX = 4 * MIB
PUBLISH_BYTES_MAX = 8 * MIB  # staged bytes that become visible at once; more come piece by piece
QUERY_COUNT_MAX = 1_000_000  # messages of one query lease
QUERY_SPANS_MAX = 2_000  # ranges of one query lease
QUERY_LEASES_MAX = 1_000  # queries of one work group in one partition
QUERY_LEASE_MS_MAX = 30 * 24 * HOUR_MS

# Disk.
RETENTION_MS_DEFAULT = 168 * HOUR_MS
RETENTION_BYTES_DEFAULT = 10 * GB
SEGMENT_BYTES_DEFAULT = 128 * MIB
SEGMENT_BYTES_MIN = 1 * MIB
SEGMENT_BYTES_MAX = 1 * GIB
DISK_FREE_RATIO_MIN = 0.05  # below it appends are refused
WAL_BYTES_MAX = 4 * GIB

assert BATCH_BYTES_MAX + ENTRY_BATCHES_MAX * 64 + EXTENSION_BYTES_MAX < ENTRY_BYTES_MAX
assert ENTRY_BYTES_MAX <= RPC_ENTRIES_BYTES_MAX  # any entry fits an rpc
assert RPC_ENTRIES_BYTES_MAX * 2 < FRAME_BYTES_MAX  # any rpc fits a frame
assert FRAME_BYTES_MAX < LINK_QUEUE_BYTES_MAX  # any frame fits an empty queue
assert ENTRY_BYTES_MAX < SHARD_UNCOMMITTED_BYTES_MAX < NODE_UNCOMMITTED_BYTES_MAX
assert BATCH_BYTES_MAX < CONNECTION_INFLIGHT_BYTES_MAX  # a largest batch can always be read
assert BATCH_BYTES_MAX < REQUEST_BYTES_MAX <= FRAME_BYTES_MAX
assert BATCH_BYTES_MAX <= READ_BYTES_MAX < FRAME_BYTES_MAX  # a reply can be forwarded
assert BATCH_BYTES_MAX <= SEGMENT_BYTES_MAX
assert TIMEOUT_MS_DEFAULT < WAIT_MS_MAX
assert PARTITIONS_PER_TOPIC_MAX <= PARTITIONS_MAX
assert CATALOG_VOTERS % 2 == 1
assert RECEIVE_COUNT_MAX <= SETTLE_ROWS_MAX  # all of one receive can be settled at once
assert 2 * DELIVER_BYTES_MAX <= ENTRY_BYTES_MAX  # what a turn collected and one large request more
assert PRODUCER_BATCHES >= 5  # Kafka's idempotent producers have up to five requests in flight
assert PARTITIONS_PER_TOPIC_MAX < STREAMS_MAX  # live sources are never forgotten
assert PIECE_BYTES_MAX + EXTENSION_BYTES_MAX < ENTRY_BYTES_MAX
assert PIECE_BYTES_MAX < READ_BYTES_MAX
assert PUBLISH_BYTES_MAX + ENTRY_BATCHES_MAX * 64 + EXTENSION_BYTES_MAX < ENTRY_BYTES_MAX
assert STAGE_DUE_MESSAGES_MAX <= ENTRY_BATCHES_MAX  # a chunk fits a Schedule
assert STAGE_DUE_BYTES_MAX + STAGE_DUE_MESSAGES_MAX * 512 < PUBLISH_BYTES_MAX
assert RELEASE_MESSAGES_MAX <= WAITING_NUMBERS_MAX
