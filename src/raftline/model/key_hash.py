"""The number by which ordered groups know a key.

Ordered delivery must hold the keys in flight in integer columns, not the keys themselves. Two keys
with the same number only wait for each other: a collision costs time, never order.

The function is permanent: numbers are in Grants of the log.
"""

from hashlib import blake2b

NO_KEY = 0  # a message without a key waits for nobody
_MASK = (1 << 63) - 1


def key_hash(key: bytes | None, priority: int = 0) -> int:
    """Return the 63-bit number of ``key`` among messages of ``priority``; 0 if there is no key.

    Order is promised per key *and priority*, so a key has another number in each priority.
    """
    if key is None:
        return NO_KEY
    salt = b"" if priority == 0 else b"%d" % priority
    number = int.from_bytes(blake2b(key, digest_size=8, salt=salt).digest(), "little") & _MASK
    return number or 1
