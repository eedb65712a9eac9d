from raftline.chaos.rig import *  # noqa: F403
from raftline.chaos.rig import flip_bit, free_port_base, mono_ms, wait_for  # noqa: F401
