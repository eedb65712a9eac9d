"""Pacing: long work on the loop, done a little at a time so that nobody waits for it."""

from collections.abc import Callable, Iterator

from raftline.node.ports import Clock

STEP_MS = 2.0


def pace(clock: Clock, steps: Iterator[object], done: Callable[[], None]) -> None:
    """Go through ``steps``, letting others have their turn every few of them; then ``done``."""
    began_mono = clock.mono_ms()
    for _ in steps:
        if clock.mono_ms() - began_mono > STEP_MS:
            clock.call_soon(lambda: pace(clock, steps, done))
            return
    done()
