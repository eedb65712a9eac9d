"""The first frame of both ends of a link: who speaks here."""

import msgspec

WIRE_FORMAT = 1


class Hello(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Identity of one end of a link. A mismatch of ``format`` or ``cluster`` refuses the link."""

    format: int
    cluster: str  # cluster uuid (hex), "" while the node belongs to none
    node: int  # NodeId, 0 while the catalog gave none
    name: str
    directory: str  # uuid of the data directory (hex), made when it was formatted
    process: str  # uuid of this run of the process (hex)
    address: str  # where this node listens for peers
    lane: str = "control"  # or "bulk": catch-up bytes, so that heartbeats never queue behind them
