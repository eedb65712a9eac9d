"""How the jobs of a simulated run ask: again and again, through any node, until it is decided."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from raftline.testing.clients import Clients

if TYPE_CHECKING:
    from raftline.testing.history import Op

Answer = dict[str, Any]
Decided = Callable[[Answer | None, str], None]  # the answer, or the code of a refusal for good

FINAL = ("fenced_query", "stage_missing", "invalid_argument", "lease_lost", "unknown_group")
PAUSE_MS = 150.0


class JobAsks:
    """Calls of one job to one partition."""

    def __init__(self, clients: Clients, topic: str) -> None:
        self.clients = clients
        self.topic = topic
        self.is_over = False  # nobody asks any more

    def ask(self, name: str, arguments: Answer, decided: Decided, tries: int = 1 << 30) -> None:
        """Ask until the answer is known, at most so often."""
        if self.is_over:  # a zombie that came back behind the drain
            return
        clients, found = self.clients, list[Answer]()
        host = clients.some_host()
        op = clients.invoke(name, host, self.topic, 0)

        def taken(op: "Op", answer: Answer) -> None:
            del op
            found.append(answer)

        def ended(op: "Op") -> None:
            code = op.error.partition(":")[0]
            if found:
                decided(found[0], "")
            elif code in FINAL or tries <= 1:
                decided(None, code)
            else:
                clients.world.after(PAUSE_MS, lambda: self.ask(name, arguments, decided, tries - 1))

        clients.call(
            host,
            op,
            lambda node, answer: node.ask(
                self.topic, 0, name, arguments, int(op.timeout_ms), answer
            ),
            taken,
            ended,
        )
