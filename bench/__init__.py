"""The benchmark of Raftline: ``python -m bench.run``. See docs/BENCHMARKS.md."""
