"""Generated from proto: make proto."""
