from raftline.chaos.traffic import *  # noqa: F403
