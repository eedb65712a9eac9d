"""Numbers of keys: fixed for good, never 0 for a key, one per priority."""

from raftline.model.key_hash import NO_KEY, key_hash


def test_the_function_is_permanent():
    assert key_hash(b"user-1") == GOLDEN["plain"]
    assert key_hash(b"user-1", 10) == GOLDEN["high"]
    assert key_hash(b"") == GOLDEN["empty"]


def test_only_no_key_is_0():
    assert key_hash(None) == key_hash(None, 10) == NO_KEY == 0
    assert all(0 < key_hash(b"%d" % n) < 1 << 63 for n in range(1000))


def test_a_key_has_another_number_in_each_priority():
    numbers = [key_hash(b"k", priority) for priority in range(-128, 128)]
    assert len(set(numbers)) == 256
    assert key_hash(b"k", 0) == key_hash(b"k")


GOLDEN = {
    "plain": 640050051772230810,
    "high": 5731300982255958331,
    "empty": 3797230976420062948,
}
