"""The metrics: one table of all there are, and how their text is written.

A node fills a ``Board`` when it is asked (node/measures.py); nothing here runs before. The table is
the only place where a metric is declared: docs/METRICS.md is written from it, and the dashboards
and alerts in ``deploy`` are checked against it.

Bounds
    A metric has at most ``ROWS_MAX`` rows; what is beyond shares one whose labels are ``_other``,
    summed or, where a sum would mean nothing, the greatest.
"""

from collections.abc import Iterator, Sequence

import msgspec

from raftline.telemetry.counters import BOUNDS_MS, OTHER, Times

ROWS_MAX = 2_000
STEP_ROWS = 100
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"
SUM, MAX = "sum", "max"

Labels = tuple[str, ...]
Value = int | float


class Metric(msgspec.Struct, frozen=True):
    """One metric: its name, kind, labels, and what it says."""

    name: str
    kind: str
    help: str
    labels: Labels = ()
    fold: str = SUM  # of rows beyond the bound, and of rows with the same labels


def _m(name: str, kind: str, text: str, labels: str = "", fold: str = SUM) -> Metric:
    return Metric(name, kind, text, tuple(labels.split()), fold)


SECTIONS: dict[str, tuple[Metric, ...]] = {
    "The node": (
        _m("raftline_build_info", GAUGE, "1; which build this is", "version python", MAX),
        _m("raftline_node_info", GAUGE, "1; who this node is", "node name cluster", MAX),
        _m("raftline_ready", GAUGE, "1 if this node takes work, else 0", fold=MAX),
        _m("raftline_uptime_seconds", GAUGE, "time since the start of the process", fold=MAX),
        _m("raftline_nodes", GAUGE, "nodes of the cluster as this node sees them", "state"),
        _m("raftline_clock_offset_seconds", GAUGE, "how far this clock is off the median"),
        _m("process_cpu_seconds_total", COUNTER, "CPU time of the process"),
        _m("process_resident_memory_bytes", GAUGE, "memory of the process"),
        _m("process_open_fds", GAUGE, "open files and sockets"),
        _m("process_start_time_seconds", GAUGE, "when the process began, Unix time", fold=MAX),
    ),
    "Gateways": (
        _m("raftline_connections", GAUGE, "clients connected now (gRPC: not told)", "gateway"),
        _m("raftline_requests_total", COUNTER, "requests answered", "gateway"),
        _m(
            "raftline_requests_refused_total",
            COUNTER,
            "refusals, by the code of the error; a publish counts each message refused",
            "gateway code",
        ),
        _m("raftline_requests_slow_total", COUNTER, "requests that were warned about", "gateway"),
    ),
    "Topics": (
        _m(
            "raftline_topic_in_messages_total",
            COUNTER,
            "messages stored in partitions led here, each once in the cluster",
            "topic",
        ),
        _m("raftline_topic_in_bytes_total", COUNTER, "the bytes of their batches", "topic"),
        _m(
            "raftline_topic_read_messages_total",
            COUNTER,
            "messages of the batches read from the log here (stream groups, plain reads)",
            "topic",
        ),
        _m("raftline_topic_read_bytes_total", COUNTER, "the bytes of these batches", "topic"),
        _m(
            "raftline_topic_delivered_bytes_total",
            COUNTER,
            "bytes of the batches handed to work groups",
            "topic",
        ),
        _m("raftline_topic_messages", GAUGE, "messages kept in partitions led here", "topic"),
        _m("raftline_topic_log_bytes", GAUGE, "bytes of the logs of replicas here", "topic"),
        _m(
            "raftline_topic_side_log_bytes",
            GAUGE,
            "bytes of the side logs of replicas here (waiting messages, traces)",
            "topic log",
        ),
        _m("raftline_topic_waiting_messages", GAUGE, "messages that wait until due", "topic"),
        _m("raftline_topic_released_messages_total", COUNTER, "that waited and came", "topic"),
        _m("raftline_topic_cancelled_messages_total", COUNTER, "that waited in vain", "topic"),
        _m(
            "raftline_topic_waiting_overdue_seconds",
            GAUGE,
            "how long the first waiting message is overdue; 0 if none is",
            "topic",
            MAX,
        ),
        _m("raftline_topic_dedup_keys", GAUGE, "dedup keys remembered", "topic"),
        _m(
            "raftline_topic_dead_letters_total",
            COUNTER,
            "messages that work groups gave up on",
            "topic",
        ),
        _m(
            "raftline_topic_outbox_messages",
            GAUGE,
            "of these, on their way to the dead-letter topic",
            "topic",
        ),
        _m(
            "raftline_partition_commit_end",
            GAUGE,
            "next offset of a partition led here",
            "topic partition",
            MAX,
        ),
        _m(
            "raftline_partition_archived_end",
            GAUGE,
            "first offset of a partition led here that is not archived",
            "topic partition",
            MAX,
        ),
        _m("raftline_topic_staged_bytes", GAUGE, "bytes staged and not published", "topic"),
        _m("raftline_topic_queries", GAUGE, "queries that stage writes", "topic"),
    ),
    "Groups": (
        _m(
            "raftline_group_lag_messages",
            GAUGE,
            "messages still to be settled (work) or read and committed (stream)",
            "topic group kind partition",
        ),
        _m(
            "raftline_group_lag_seconds",
            GAUGE,
            "age of the oldest of these; 0 if there is none",
            "topic group kind partition",
            MAX,
        ),
        _m(
            "raftline_group_oldest_unacked_seconds",
            GAUGE,
            "age of the oldest unacked message of a work group, over its partitions led here",
            "topic group",
            MAX,
        ),
        _m(
            "raftline_group_messages",
            GAUGE,
            "messages of a work group by state: fresh, leased, resting, ready, dying, dead",
            "topic group state",
        ),
        _m("raftline_group_receivers", GAUGE, "receives that wait for messages", "topic group"),
        _m(
            "raftline_group_delivered_messages_total",
            COUNTER,
            "messages leased to workers, repeats included",
            "topic group",
        ),
        _m(
            "raftline_group_redelivered_messages_total",
            COUNTER,
            "of these, not for the first time: retries",
            "topic group",
        ),
        _m(
            "raftline_group_settled_messages_total",
            COUNTER,
            "messages settled, by verb: ack, nack, reject, extend, release",
            "topic group verb",
        ),
        _m(
            "raftline_group_lease_lost_messages_total",
            COUNTER,
            "messages settled too late: the lease had moved on",
            "topic group",
        ),
        _m(
            "raftline_group_lease_expired_messages_total",
            COUNTER,
            "messages whose lease ran out",
            "topic group",
        ),
        _m("raftline_group_members", GAUGE, "members of a stream group", "group"),
        _m(
            "raftline_group_rebalances_total",
            COUNTER,
            "changes of who should read what in a stream group",
            "group",
        ),
        _m(
            "raftline_group_pauses_total",
            COUNTER,
            "partitions that moved from one member to another",
            "group",
        ),
        _m(
            "raftline_group_pause_seconds_total",
            COUNTER,
            "time in which nobody read partitions that moved",
            "group",
        ),
        _m("raftline_group_pause_seconds_max", GAUGE, "the longest of these", "group", MAX),
    ),
    "Times": (
        _m(
            "raftline_append_seconds",
            HISTOGRAM,
            "from the arrival of a batch at the leader until it is committed, synced and applied; "
            "batches that share an entry count with the oldest of them",
        ),
        _m(
            "raftline_receive_seconds",
            HISTOGRAM,
            "from the choice of messages for a worker until they are handed out; waiting for "
            "messages is not counted",
        ),
        _m(
            "raftline_settle_seconds",
            HISTOGRAM,
            "from the arrival of settles at the leader until they are applied",
        ),
        _m("raftline_wal_sync_seconds", HISTOGRAM, "one write and fsync of the write-ahead log"),
        _m("raftline_turn_seconds", HISTOGRAM, "one turn of the loop over all dirty shards"),
    ),
    "Raft": (
        _m("raftline_shards", GAUGE, "replicas here by role", "role"),
        _m("raftline_shards_quiet", GAUGE, "replicas here whose shard is at rest"),
        _m("raftline_shards_quarantined", GAUGE, "replicas here that are out of service"),
        _m("raftline_shards_leaderless", GAUGE, "shards without a leader known to this node"),
        _m(
            "raftline_shards_under_replicated",
            GAUGE,
            "shards led here with a replica that is silent or far behind",
        ),
        _m("raftline_raft_term_max", GAUGE, "the greatest term of all replicas here", fold=MAX),
        _m("raftline_raft_committed_entries", GAUGE, "commit indexes of all replicas here, summed"),
        _m("raftline_raft_applied_entries", GAUGE, "applied indexes of all replicas, summed"),
        _m(
            "raftline_raft_unapplied_entries",
            GAUGE,
            "entries committed and not applied, all replicas here",
        ),
        _m(
            "raftline_raft_follower_behind_entries_max",
            GAUGE,
            "entries that the furthest follower of a shard led here lacks",
            fold=MAX,
        ),
        _m("raftline_raft_uncommitted_bytes", GAUGE, "appends on this node without an outcome"),
        _m("raftline_catalog_leader", GAUGE, "1 if this node leads the catalog"),
        _m("raftline_catalog_term", GAUGE, "term of the catalog's replica here", fold=MAX),
        _m("raftline_catalog_commit_index", GAUGE, "commit index of the catalog here", fold=MAX),
        _m("raftline_catalog_applied_index", GAUGE, "applied index of the catalog here", fold=MAX),
        _m("raftline_elections_started_total", COUNTER, "campaigns of replicas here"),
        _m("raftline_elections_won_total", COUNTER, "elections won by replicas here"),
        _m(
            "raftline_leader_changes_total",
            COUNTER,
            "new leaders that replicas here heard of or became",
        ),
    ),
    "Disk": (
        _m("raftline_disk_free_bytes", GAUGE, "free space where the node stores; -1 if unknown"),
        _m("raftline_disk_total_bytes", GAUGE, "size of that file system"),
        _m("raftline_disk_full", GAUGE, "1 while appends are refused for lack of space", fold=MAX),
        _m("raftline_wal_bytes", GAUGE, "files of the write-ahead log"),
        _m("raftline_wal_files", GAUGE, "how many these are"),
        _m("raftline_wal_written_bytes_total", COUNTER, "bytes written to the write-ahead log"),
        _m("raftline_log_bytes", GAUGE, "bytes of all partition logs here, side logs too"),
    ),
}

METRICS: dict[str, Metric] = {row.name: row for rows in SECTIONS.values() for row in rows}


class Board:
    """The values of one moment."""

    __slots__ = ("_rows", "_times")

    def __init__(self) -> None:
        self._rows: dict[str, dict[Labels, Value]] = {}
        self._times: dict[str, Times] = {}

    def put(self, name: str, value: Value, *labels: str) -> None:
        """Add a row; one with the same labels is added to, or the greater stays."""
        metric = METRICS[name]
        assert len(labels) == len(metric.labels), (name, labels)
        rows = self._rows.setdefault(name, {})
        if labels not in rows and len(rows) >= ROWS_MAX:
            labels = (OTHER,) * len(labels)
        before = rows.get(labels)
        if before is None:
            rows[labels] = value
        else:
            rows[labels] = before + value if metric.fold == SUM else max(before, value)

    def put_times(self, name: str, times: Times) -> None:
        """Add a histogram."""
        assert METRICS[name].kind == HISTOGRAM, name
        self._times[name] = times

    def value(self, name: str, *labels: str) -> Value | None:
        """Return one row, for who wants to know it."""
        return self._rows.get(name, {}).get(labels)

    def render(self) -> bytes:
        """Return the text of everything here."""
        lines: list[str] = []
        for _ in self.write(lines):
            pass
        return ("\n".join(lines) + "\n").encode()

    def write(self, lines: list[str]) -> Iterator[None]:
        """Write all lines, in the order of the table, some at each step."""
        for name, metric in METRICS.items():
            rows, times = self._rows.get(name), self._times.get(name)
            if rows is None and times is None:
                continue
            lines.append(f"# HELP {name} {_escape_help(metric.help)}")
            lines.append(f"# TYPE {name} {metric.kind}")
            for at, (labels, value) in enumerate((rows or {}).items()):
                lines.append(f"{name}{_labels(metric.labels, labels)} {_number(value)}")
                if at % STEP_ROWS == STEP_ROWS - 1:
                    yield
            if times is not None:
                lines += _histogram(name, times)
            yield


def to_markdown() -> str:
    """Return the reference of all metrics. docs/METRICS.md is this text."""
    lines = [
        "# Metrics",
        "",
        "Generated from `src/raftline/telemetry/metrics.py` by `make docs`; do not edit.",
        "`GET /metrics` on the HTTP port, in Prometheus' text format. Counters begin at 0 with the",
        "process, but for those that are part of the replicated state (released, cancelled,",
        "rebalances, pauses, dead letters). What belongs to a partition or group is told by the",
        f"node that leads it. A metric has at most {ROWS_MAX:,} rows; what is beyond shares one",
        f"whose labels are `{OTHER}`. Buckets of times, in seconds: "
        + ", ".join(_number(bound / 1000) for bound in BOUNDS_MS)
        + ".",
    ]
    for section, rows in SECTIONS.items():
        lines += ["", f"## {section}", "", "| metric | kind | labels | what |", "|---|---|---|---|"]
        lines += [
            f"| `{row.name}` | {row.kind} | {', '.join(row.labels)} | {row.help} |" for row in rows
        ]
    return "\n".join(lines) + "\n"


def _histogram(name: str, times: Times) -> list[str]:
    lines: list[str] = []
    total = 0
    for bound_ms, count in zip(BOUNDS_MS, times.counts, strict=False):
        total += count
        lines.append(f'{name}_bucket{{le="{_number(bound_ms / 1000)}"}} {total}')
    total += times.counts[-1]
    lines.append(f'{name}_bucket{{le="+Inf"}} {total}')
    lines.append(f"{name}_sum {_number(times.sum_ms / 1000)}")
    lines.append(f"{name}_count {total}")
    return lines


def _labels(names: Sequence[str], values: Sequence[str]) -> str:
    if not names:
        return ""
    pairs = [f'{name}="{_escape(value)}"' for name, value in zip(names, values, strict=True)]
    return "{" + ",".join(pairs) + "}"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _escape_help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _number(value: Value) -> str:
    return repr(value) if isinstance(value, int) else f"{value:.15g}"
