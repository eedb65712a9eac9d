"""Generated from proto/types: make proto."""
