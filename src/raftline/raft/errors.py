"""What the Raft core may raise.

```
Exception
├── Refused            the call or rpc was turned away; nothing changed
│   ├── ProposalDropped   no leader to take it, or the leader has no room
│   ├── UnknownSender     an answer from a replica that is not in the configuration
│   └── LocalOnly         a kind that only this replica may give itself
└── RaftFault (ValueError)   content that no correct replica sends or stores
    ├── ConfChangeFault      a configuration change that cannot be carried out
    └── EntryLost            an entry that this replica acknowledged is not in its log
```
"""

from enum import Enum


class Refused(Exception):
    """The call or rpc was turned away and nothing changed."""


class ProposalDropped(Refused):
    """The proposal was not taken. It will not be committed; try again or elsewhere."""


class UnknownSender(Refused):
    """An answer came from a replica that is not in the configuration."""


class LocalOnly(Refused):
    """This kind of rpc never comes from another replica."""


class RaftFault(ValueError):
    """Something impossible was sent or stored; the replica did not take it in."""


class EntryLost(RaftFault):
    """The leader counts on an entry that this replica acknowledged and does not have."""


class Trouble(Enum):
    """Why a configuration change cannot be carried out."""

    ALREADY_JOINT = "the configuration is joint already"
    NO_VOTERS_YET = "a configuration without voters cannot become joint"
    NOT_JOINT = "there is no joint configuration to leave"
    SIMPLE_WHILE_JOINT = "a joint configuration takes no simple change"
    NO_VOTERS_LEFT = "no voter would be left"
    TOO_MANY_AT_ONCE = "a simple change may touch one voter at most"
    UNKNOWN_KIND = "the kind of change is unknown"
    INCONSISTENT = "the parts of the configuration contradict each other"


class ConfChangeFault(RaftFault):
    """A configuration change cannot be carried out; the old configuration stays."""

    def __init__(self, trouble: Trouble, detail: str = "") -> None:
        super().__init__(f"{trouble.value}{': ' if detail else ''}{detail}")
        self.trouble = trouble
