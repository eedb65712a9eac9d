"""The command ``raftline``.

``serve`` is told apart before anything else is loaded: a node starts without the libraries that
draw tables for people.
"""

import sys


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    if words and words[0] == "serve":
        from raftline.cli import serve

        return serve.run(words[1:])
    from raftline.cli import app

    return app.run(words)
