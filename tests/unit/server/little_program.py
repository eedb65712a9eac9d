"""A process around a little node: ``python little_program.py SETTINGS_JSON [MODE]``."""

import sys
import time
from collections.abc import Callable

import msgspec

from raftline.config.settings import Settings
from raftline.model.errors import WrongDirectory
from raftline.server import process
from raftline.wire.peer.hello import WIRE_FORMAT, Hello
from tests.unit.gateways.little_node import LittleNode


class LittleProgram(LittleNode):
    """A node that stores nothing. ``mode`` says how it misbehaves."""

    mode = ""

    def __init__(self, clock, rng, disk, sync_lane, segment_lane, network, settings, log) -> None:
        super().__init__()
        self.clock = clock
        self.sync_lane = sync_lane
        self.on_fatal: Callable[[str], None] = lambda reason: None

    def start(self) -> None:
        if self.mode == "refuse":
            raise WrongDirectory("the directory is of cluster 42", "start elsewhere")
        if self.mode == "full":
            raise OSError(28, "No space left on device")
        if self.mode == "slow":
            time.sleep(1.5)  # as a recovery does: nothing else runs
        if self.mode == "fatal":
            self.clock.call_later(50, lambda: self.on_fatal("fdatasync failed: EIO"))
        if self.mode == "bug":
            self.clock.call_later(50, lambda: 1 // 0)

    def stop(self, done: Callable[[], None]) -> None:
        if self.mode == "stuck":
            return
        self.sync_lane.submit(lambda: None, lambda _result, _error: done())

    def hello(self) -> Hello:
        return Hello(WIRE_FORMAT, "c", 1, "n", "d", "p", "a")

    def link_up(self, link: object) -> str:
        return "not here"


if __name__ == "__main__":
    given = msgspec.json.decode(sys.argv[1].encode(), type=Settings)
    LittleProgram.mode = sys.argv[2] if len(sys.argv) > 2 else ""
    if LittleProgram.mode == "stuck":
        process.STOP_MS_MAX = 300
    sys.exit(process.run(given, LittleProgram))
