"""Generated from proto/raftline: make proto."""
