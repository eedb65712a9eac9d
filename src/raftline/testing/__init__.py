"""Raftline in a test: production nodes on a simulated clock, network and disk.

``cluster(nodes=3, seed=7)`` is the way in; see docs/guides/testing.md. The checker
(``check``, ``History``, ``Final``) also judges runs with real processes and real clients.
"""

from raftline.testing.checker import Verdict, Violation, check
from raftline.testing.cluster import SimCluster, SimError, cluster
from raftline.testing.history import Final, History, Op, ReplicaLog
from raftline.testing.sim_disk import DiskOdds, PowerLoss, SimDisk

__all__ = [
    "DiskOdds",
    "Final",
    "History",
    "Op",
    "PowerLoss",
    "ReplicaLog",
    "SimCluster",
    "SimDisk",
    "SimError",
    "Verdict",
    "Violation",
    "check",
    "cluster",
]
