"""Take as many open files as the system lets us have.

A partition that is written keeps its segment open until the next checkpoint (storage/file_pool.py,
F2), so a node with a thousand of them needs more than the usual soft limit of 1,024. Without files
left it can neither write a segment nor take a connection.
"""

import resource
from contextlib import suppress

FILES = 1 << 18  # where the system sets no limit


def take_open_files() -> int:
    """Raise the soft limit to what is allowed; return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES if hard == resource.RLIM_INFINITY else hard
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return soft
    with suppress(OSError, ValueError):  # macOS has one more limit, and does not tell it here
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return soft
