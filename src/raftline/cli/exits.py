"""Exit codes, and errors as text for people.

0 done, 2 usage, 4 not found, 5 exists, 6 refused, 7 try again, 8 over a limit, 9 a check failed.
1 is a bug of ours.
"""

import errno
import json
import os
import sys
from collections.abc import Callable

from raftline.model.errors import Conflict, Invalid, NotFound, RaftlineError, Unavailable

DONE = 0
BUG = 1
USAGE = 2
NOT_FOUND = 4
EXISTS = 5
REFUSED = 6
TRY_AGAIN = 7
OVER_LIMIT = 8
CHECK_FAILED = 9
INTERRUPTED = 130

# Errors that arise on this side and have no code between nodes.
_OF_OURS: dict[type[RaftlineError], int] = {
    NotFound: NOT_FOUND,
    Invalid: USAGE,
    Conflict: REFUSED,
    Unavailable: TRY_AGAIN,
}

_OF_OUTPUTS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def code_of(error: RaftlineError) -> int:
    """Return the exit code of ``error``, from the one table of errors."""
    from raftline.gateways.error_table import ERROR_TABLE, row_of

    kind = type(error)
    if kind not in ERROR_TABLE:  # of this side: as its family
        kind = next((base for base in kind.__mro__ if base in _OF_OURS), kind)
    return _OF_OURS.get(kind) or row_of(error).exit


def while_read(run: Callable[[], int]) -> int:
    """Run what prints, and return its exit code.

    A reader who had enough (``raftline consume … | head``) is no error. A file or an output that
    cannot be written is refused.
    """
    open_what_is_closed()
    code = DONE
    try:
        code = run()
        sys.stdout.flush()  # what is left for the end of the process ends in a stack trace
    except BrokenPipeError:
        write_no_more()
    except OSError as error:
        write_no_more()
        where = error.filename or ("the output" if error.errno in _OF_OUTPUTS else "")
        said = error.strerror or str(error)
        complain(f"{where}: {said}" if where else said, "choose another place, or make room there")
        code = REFUSED
    return code


def write_no_more() -> None:
    """Let what is printed from now on, and what is left to be written, go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def open_what_is_closed() -> None:
    """Give a process that was started without standard streams (``>&-``) silent ones."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))


def complain(message: str, hint: str = "") -> None:
    """Say on standard error what was wrong and what to do next."""
    sys.stderr.write(f"error: {message}\n" + (f"hint:  {hint}\n" if hint else ""))


def fail(error: RaftlineError, *, as_json: bool = False) -> int:
    """Report ``error`` and return its exit code. Programs get what HTTP would have said."""
    if as_json:
        row = {"code": error.code or "refused", "message": error.message, "hint": error.hint}
        sys.stderr.write(json.dumps({"error": row}, ensure_ascii=False) + "\n")
    else:
        complain(error.message, error.hint)
    return code_of(error)
