"""Generated from proto/queue: make proto."""
