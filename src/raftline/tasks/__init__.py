"""Tasks: functions that run elsewhere, later, until they succeed or are given up on.

``App`` and its ``@app.task`` are in app.py, the worker that runs them in worker.py.
"""

from raftline.tasks.app import App, Task, TaskRef
from raftline.tasks.outcomes import GiveUp, Retry, TaskFailed

__all__ = ["App", "GiveUp", "Retry", "Task", "TaskFailed", "TaskRef"]
