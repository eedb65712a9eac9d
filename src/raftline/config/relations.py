"""What must hold between settings, checked once and together.

Each check looks at the whole tree and yields complaints that name the fields and say why.
"""

from collections.abc import Iterator

from raftline.config.addresses import is_loopback, parse_address
from raftline.config.settings import Settings

ELECTION_HEARTBEATS_MIN = 5


def problems(settings: Settings) -> list[str]:
    """Return every violated relation, as sentences."""
    checks = (_addresses, _membership, _patience, _delivery, _sizes)
    return [complaint for check in checks for complaint in check(settings)]


def _addresses(settings: Settings) -> Iterator[str]:
    listen = settings.listen
    seen: dict[str, str] = {}
    for name in ("http", "grpc", "kafka", "peer"):
        address: str = getattr(listen, name)
        try:
            host, port = parse_address(address)
        except ValueError as error:
            yield f"listen.{name}: {error}"
            continue
        if port and address in seen:
            yield f"listen.{name} and listen.{seen[address]} are both {address}"
        seen[address] = name
        if not is_loopback(host) and not settings.node.insecure:
            yield (
                f"listen.{name} = {address} can be reached from other machines, and credentials "
                f"and TLS are not set up: listen on 127.0.0.1, or say --insecure"
            )
    yield from _told_addresses(settings)


def _told_addresses(settings: Settings) -> Iterator[str]:
    listen = settings.listen
    told = {
        f"listen.{name}": str(getattr(listen, name))
        for name in ("advertise_http", "advertise_grpc", "advertise_kafka", "advertise_peer")
    }
    told["node.join"] = settings.node.join
    told |= {f"node.peers.{name}": address for name, address in settings.node.peers.items()}
    for name, address in told.items():
        if not address and not name.startswith("node.peers."):
            continue
        try:
            host, port = parse_address(address)
        except ValueError as error:
            yield f"{name}: {error}"
            continue
        if not host or not port:
            yield f"{name} = {address}: others need a host and a port to call"


def _membership(settings: Settings) -> Iterator[str]:
    node = settings.node
    if node.peers and node.name not in node.peers:
        yield (
            f"node.peers must list this node too: node.name {node.name!r} is not among "
            f"{', '.join(sorted(node.peers))}"
        )
    ways = [
        name
        for name, given in (
            ("node.peers", bool(node.peers)),
            ("node.join", bool(node.join)),
            ("node.bootstrap", node.bootstrap),
        )
        if given
    ]
    if node.join and len(ways) > 1:
        yield f"give one of {' and '.join(ways)}: a node joins a cluster or founds one"


def _patience(settings: Settings) -> Iterator[str]:
    raft = settings.raft
    if raft.tick_ms * raft.election_ticks < ELECTION_HEARTBEATS_MIN * raft.heartbeat_ms:
        yield (
            f"raft.tick_ms x raft.election_ticks = {raft.tick_ms * raft.election_ticks} ms must be "
            f"at least {ELECTION_HEARTBEATS_MIN} x raft.heartbeat_ms ({raft.heartbeat_ms}), or one "
            f"lost packet starts an election"
        )


def _delivery(settings: Settings) -> Iterator[str]:
    delivery = settings.delivery
    if delivery.backoff_ms > delivery.backoff_ms_max:
        yield (
            f"delivery.backoff_ms = {delivery.backoff_ms} is over delivery.backoff_ms_max = "
            f"{delivery.backoff_ms_max}"
        )


def _sizes(settings: Settings) -> Iterator[str]:
    """Each row: the smaller must not pass the larger, and why."""
    wal, log, raft, limits = settings.wal, settings.log, settings.raft, settings.limits
    rows = (
        ("wal.file_bytes", wal.file_bytes * 2, "wal.bytes_max", wal.bytes_max, 2),
        ("wal.turn_bytes", wal.turn_bytes, "wal.file_bytes", wal.file_bytes, 1),
        ("limits.batch_bytes_max", limits.batch_bytes_max, "wal.file_bytes", wal.file_bytes, 1),
        ("log.flush_bytes", log.flush_bytes, "log.segment_bytes", log.segment_bytes, 1),
        (
            "limits.batch_bytes_max",
            limits.batch_bytes_max,
            "raft.uncommitted_bytes_max",
            raft.uncommitted_bytes_max,
            1,
        ),
        (
            "raft.uncommitted_bytes_max",
            raft.uncommitted_bytes_max,
            "limits.node_uncommitted_bytes_max",
            limits.node_uncommitted_bytes_max,
            1,
        ),
        (
            "limits.batch_bytes_max",
            limits.batch_bytes_max,
            "limits.request_bytes_max",
            limits.request_bytes_max,
            1,
        ),
    )
    for small, small_bytes, large, large_bytes, factor in rows:
        if small_bytes > large_bytes:
            times = f"{factor} x " if factor > 1 else ""
            yield f"{times}{small} = {small_bytes} must fit in {large} = {large_bytes}"
    if settings.topics.partitions > limits.partitions_max:
        yield (
            f"topics.partitions = {settings.topics.partitions} is over limits.partitions_max = "
            f"{limits.partitions_max}"
        )
