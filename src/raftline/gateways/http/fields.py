"""Kinds of values in JSON bodies."""

from typing import Annotated

import msgspec

from raftline.model.limits import OFFSET_MAX

Int = Annotated[int, msgspec.Meta(ge=-OFFSET_MAX, le=OFFSET_MAX)]
"""JSON has no end of numbers, a node has 64 bits for one; for those that nobody bounds otherwise"""
