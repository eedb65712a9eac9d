"""Real processes under load and faults, judged by the promises: `raftline chaos`."""
