"""Where a fault happens, with chance from the run's seed."""

import random
import time
from collections.abc import Callable

import msgspec

from raftline.chaos.rig import Rig


class Scene(msgspec.Struct, frozen=True):
    """Where a fault happens."""

    rig: Rig
    rng: random.Random
    topic: str
    hold_s: float  # how long a fault lasts, about
    tell: Callable[[str], None]
    small_disk: str = ""  # the node whose disk can be filled

    def victims(self) -> list[str]:
        """Return all nodes of the run's beginning, in chance's order."""
        return self.rng.sample(self.rig.founders, len(self.rig.founders))

    def hold(self) -> None:
        """Let it last."""
        time.sleep(self.hold_s * (0.5 + self.rng.random()))
