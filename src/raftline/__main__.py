"""``python -m raftline`` is the command ``raftline``."""

import sys

from raftline.cli import main

if __name__ == "__main__":
    sys.exit(main())
