"""What a process tells its operators: log events now, metrics later."""
