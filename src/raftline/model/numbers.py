"""Arrays of 64-bit numbers as bytes: little-endian on disks and wires, whatever the machine is."""

import sys
from array import array


def pack_numbers(numbers: "array[int]") -> bytes:
    """Return the bytes of an array."""
    if sys.byteorder == "big":
        numbers = numbers[:]
        numbers.byteswap()
    return numbers.tobytes()


def unpack_numbers(data: bytes | memoryview) -> "array[int]":
    """Return the array that ``pack_numbers`` was given."""
    numbers = array("q")
    numbers.frombytes(data)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
