"""Raftline: a durable, replicated log that is also a work queue."""

__version__ = "0.1.0"
