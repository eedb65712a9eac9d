"""Generated from proto/queue/v1: make proto."""
