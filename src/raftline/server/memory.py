"""Keep big blocks in the heap.

glibc maps and unmaps every block of 128 KiB and more, and each fresh one costs its page faults
again; receive buffers and batches are of that size all the time. A higher threshold keeps them.
"""

import sys

M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
TRIM_BYTES = 128 << 20
MMAP_BYTES = (64 << 20, 32 << 20)  # glibc refuses more than half of its largest heap


def keep_big_blocks() -> bool:
    """Raise the thresholds; False where there is no glibc to ask."""
    if sys.platform != "linux":
        return False
    import ctypes

    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    mallopt.argtypes = (ctypes.c_int, ctypes.c_int)
    mallopt.restype = ctypes.c_int
    kept = any(mallopt(M_MMAP_THRESHOLD, size) for size in MMAP_BYTES)
    return bool(mallopt(M_TRIM_THRESHOLD, TRIM_BYTES)) and kept
