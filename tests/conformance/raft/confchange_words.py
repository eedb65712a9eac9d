"""The words of a dialogue about configurations.

``simple``, ``enter-joint autoleave=true`` and ``leave-joint``, each with changes such as
``v1 l2 r3 u4`` on the line below; the answer is the configuration and everyone's progress. The log
grows by one entry per step, so ``next`` tells when a replica was first seen.
"""

from raftline.raft.errors import ConfChangeFault, Trouble
from raftline.raft.members import (
    Members,
    Plan,
    plan_enter_joint,
    plan_leave_joint,
    plan_simple,
)
from raftline.raft.progress import Inflights, Progress
from raftline.raft.state import carry_over
from tests.conformance.raft.cluster import Complaint
from tests.conformance.raft.dialogue import Step
from tests.conformance.raft.interaction_words import parse_bool, parse_changes
from tests.conformance.raft.printer import show_members, show_progress_map

# What the dialogues call our troubles.
SPOKEN = {
    Trouble.ALREADY_JOINT: "config is already joint",
    Trouble.NO_VOTERS_YET: "can't make a zero-voter config joint",
    Trouble.NOT_JOINT: "can't leave a non-joint config",
    Trouble.SIMPLE_WHILE_JOINT: "can't apply simple config change in joint config",
    Trouble.NO_VOTERS_LEFT: "removed all voters",
    Trouble.TOO_MANY_AT_ONCE: "more than one voter changed without entering joint config",
}


class ConfChangeWords:
    """Runs the steps of one dialogue, in order."""

    def __init__(self) -> None:
        self.members = Members()
        self.progress: dict[int, Progress] = {}
        self.last_index = 0

    def run(self, step: Step) -> list[str]:
        try:
            plan = self.plan(step)
        except Complaint as complaint:
            return [str(complaint)]
        except ConfChangeFault as fault:
            return [SPOKEN.get(fault.trouble) or str(fault)]
        else:
            self.members = plan.members
            self.progress = carry_over(
                plan, self.progress, self.last_index, lambda: Inflights(10, 0)
            )
        finally:
            self.last_index += 1
        return [show_members(self.members), *show_progress_map(self.progress)]

    def plan(self, step: Step) -> Plan:
        changes = parse_changes(" ".join(step.text))
        if step.verb == "simple":
            return plan_simple(self.members, changes)
        if step.verb == "enter-joint":
            auto_leave = parse_bool(dict(step.options()).get("autoleave", "false"))
            return plan_enter_joint(self.members, changes, auto_leave=auto_leave)
        if step.verb != "leave-joint":
            raise Complaint("unknown command")
        if changes:
            raise Complaint("this command takes no input")
        return plan_leave_joint(self.members)
