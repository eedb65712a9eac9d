"""The checksums of a segment: every byte of its .log file is covered.

Per chunk of 64 KiB: the CRC32C of its bytes, and the running chain at its first byte. The chain at
any batch boundary is the chunk's chain run over the bytes between, so one value per chunk stands
for one per batch. The two checks overlap: chunk k is also right if its bytes lead from chain k to
chain k + 1, which is how a damaged .sum entry is told from a damaged chunk.

Invariants
    S1  ``crcs[k]`` covers the bytes of chunk k that were written, all or the first part of it.
    S2  ``verified[k]`` is 1 only after the bytes on disk were read and matched since the last
        write to the chunk; the loop serves cached bytes of such chunks only.

File: head (side_file.py), then 12 bytes per chunk: crc u32, chain u32, crc32c u32 of these eight
seeded with the segment's base offset.
"""

import struct
from array import array

from crc32c import crc32c

from raftline.storage.files import Buffer
from raftline.storage.log_words import CHUNK_BYTES

ENTRY = struct.Struct("<III")
_BODY = struct.Struct("<II")


def chunk_count(length: int) -> int:
    """Return how many chunks ``length`` bytes take."""
    return -(-length // CHUNK_BYTES)


class SumTable:
    """The sums of one segment, owned by the lane; the loop reads ``verified``."""

    __slots__ = ("chain", "chains", "crcs", "known", "size", "verified")

    def __init__(self, chain: int) -> None:
        self.crcs = array("I")
        self.chains = array("I")
        self.known = bytearray()  # 0: the .sum entry is lost, the chunk cannot be trusted
        self.verified = bytearray()
        self.size = 0
        self.chain = chain  # after the last byte

    def add(self, buffer: Buffer) -> None:
        """Take up bytes that were written at the end."""
        view = memoryview(buffer)
        at, total = 0, len(view)
        while at < total:
            chunk, used = divmod(self.size, CHUNK_BYTES)
            if not used:
                self.push(0, self.chain)
            piece = view[at : at + CHUNK_BYTES - used]
            self.verified[chunk] = 0
            self.crcs[chunk] = crc32c(piece, self.crcs[chunk])
            self.chain = crc32c(piece, self.chain)
            at += len(piece)
            self.size += len(piece)

    def push(self, crc: int, chain: int, known: int = 1) -> None:
        """Add one chunk as it is."""
        self.crcs.append(crc)
        self.chains.append(chain)
        self.known.append(known)
        self.verified.append(0)

    def length_of(self, chunk: int) -> int:
        """Return how many bytes of the chunk were written."""
        return min(CHUNK_BYTES, self.size - chunk * CHUNK_BYTES)

    def chain_after(self, chunk: int) -> int:
        """Return the chain at the end of the chunk, as recorded."""
        return self.chains[chunk + 1] if chunk + 1 < len(self.chains) else self.chain

    def check(self, chunk: int, data: memoryview) -> bool:
        """Say whether ``data`` is what was written to the chunk. S2."""
        right = (
            self.known[chunk] == 1
            and len(data) == self.length_of(chunk)
            and crc32c(data) == self.crcs[chunk]
        )
        self.verified[chunk] = right
        return right

    def matches(self, first: int, data: Buffer) -> bool:
        """Say whether ``data`` is what was written to the whole chunks from ``first`` on. Loop."""
        view = memoryview(data)
        return all(
            crc32c(view[at : at + CHUNK_BYTES]) == self.crcs[first + at // CHUNK_BYTES]
            for at in range(0, len(view), CHUNK_BYTES)
        )

    def cut(self, position: int, chunk_data: memoryview) -> None:
        """Forget what lies after ``position``; ``chunk_data`` is what stays of its chunk."""
        keep = chunk_count(position)
        del self.crcs[keep:], self.chains[keep:], self.known[keep:], self.verified[keep:]
        self.size = position
        if not keep:
            return
        chain = self.chains[keep - 1]
        self.crcs[keep - 1] = crc32c(chunk_data)
        self.verified[keep - 1] = 0
        self.chain = crc32c(chunk_data, chain)

    def encode(self, first: int, seed: int) -> bytes:
        """Return the entries from chunk ``first`` on, for the file."""
        rows: list[bytes] = []
        for chunk in range(first, len(self.crcs)):
            body = _BODY.pack(self.crcs[chunk], self.chains[chunk])
            if self.known[chunk]:
                rows.append(body + crc32c(body, seed).to_bytes(4, "little"))
            else:
                rows.append(bytes(ENTRY.size))  # never verifies
        return b"".join(rows)


def decode_sums(data: bytes, length: int, chain: int, chain_end: int, seed: int) -> SumTable:
    """Return the sums of ``length`` bytes; damaged entries are marked as not known."""
    table = SumTable(chain)
    for chunk in range(chunk_count(length)):
        row = data[chunk * ENTRY.size : (chunk + 1) * ENTRY.size]
        if len(row) == ENTRY.size:
            crc, chunk_chain, own = ENTRY.unpack(row)
            if crc32c(row[: _BODY.size], seed) == own:
                table.push(crc, chunk_chain)
                continue
        table.push(0, 0, 0)
    table.size = length
    table.chain = chain_end
    return table
