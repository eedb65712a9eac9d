"""Generated from proto/raftline/v1: make proto."""
