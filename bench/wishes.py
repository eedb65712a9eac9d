"""What headers cost: CPU from a sealed Kafka batch to its offsets, with wishes and without.

    python -m bench.wishes

Batches of 100 messages of 100 bytes from an idempotent producer, through what the gateway and the
machine of a leader do with them; no network, no disk. Microseconds of CPU a message.
"""

import sys
import time
from collections.abc import Callable

from raftline.gateways.kafka.wishes import PREFIX, make_parcel, read_wishes
from raftline.machines.partition.commands import encode_append
from raftline.machines.partition.machine import PartitionMachine
from raftline.model.batch import check_batch
from raftline.model.message import Header
from raftline.model.records import open_batch, seal_batch
from raftline.model.settings import effective
from raftline.node.parcels import encode_new_parcel

MESSAGES = 100
BATCHES = 200
Headers = list[Header]
Wish = Callable[[int, int], Headers]  # of a message: its place in the batch, its number

WISHES: dict[str, Wish] = {
    "no wish": lambda _, __: [],
    "one of 100 waits": lambda at, _: [("raftline-delay-ms", b"500")] if not at else [],
    "one of 100 has a dedup key": lambda at, number: _key(number) if not at else [],
    "all wait": lambda _, __: [("raftline-delay-ms", b"500")],
    "all have dedup keys": lambda _, number: _key(number),
}


def main() -> int:
    """Print a line for each kind of batch."""
    print(f"{'headers=false':30} {measure(WISHES['no wish'], reads=False):7.2f} us")
    for name, wish in WISHES.items():
        print(f"{name:30} {measure(wish, reads=True):7.2f} us")
    return 0


def measure(wish: Wish, *, reads: bool) -> float:
    """Return the microseconds of CPU that one message takes."""
    machine = PartitionMachine()
    batches = [_batch(at * MESSAGES, wish) for at in range(BATCHES)]
    began = time.process_time()
    for at, batch in enumerate(batches, 1):
        machine.apply(at, 1, _entry(batch, at, reads=reads))
    return (time.process_time() - began) / (BATCHES * MESSAGES) * 1e6


def _entry(batch: bytes, at_ms: int, *, reads: bool) -> bytes:
    info = check_batch(batch)
    if not reads or PREFIX not in batch:
        return encode_append(at_ms, [(batch, info)])
    settings, messages = effective({"headers": True}), open_batch(batch)
    parcel = make_parcel(info, messages, read_wishes(messages, settings, at_ms))
    return encode_new_parcel(at_ms, parcel, settings)


def _batch(sequence: int, wish: Wish) -> bytes:
    messages = [
        (b"key", b"v" * 100, wish(at, sequence + at), 1_700_000_000_000) for at in range(MESSAGES)
    ]
    return seal_batch(messages, producer_id=5, producer_epoch=0, base_sequence=sequence)


def _key(number: int) -> Headers:
    return [("raftline-dedup-key", b"%d" % number)]


if __name__ == "__main__":
    sys.exit(main())
