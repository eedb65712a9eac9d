"""Generated from proto/types/v1: make proto."""
