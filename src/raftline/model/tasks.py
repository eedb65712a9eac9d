"""Tasks: messages of the topic ``tasks`` whose value is a payload as JSON.

What a task is besides its payload stands in headers, so every gateway and client reads it alike.
Its retries are counted by whoever settles it: the topic allows more than any task asks for.
"""

TASK_TOPIC = "tasks"
TASK_GROUP = "workers"
TASK_TYPE_HEADER = "raftline-task-type"
TASK_RETRIES_HEADER = "raftline-task-retries"  # deliveries after the first, as text
TASK_KEY_HEADER = "raftline-task-key"  # the idempotency key, as its sender wrote it

TASK_TYPE_CHARS_MAX = 249
TASK_RETRIES_MAX = 1000
TASK_TOPIC_SETTINGS: dict[str, str | int | bool] = {"max_retries": TASK_RETRIES_MAX}
