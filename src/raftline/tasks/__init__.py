"""Tasks: functions that run elsewhere, later, until they succeed or are given up on."""
