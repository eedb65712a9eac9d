"""All drivers in turn: what one of them sends another receives and a third settles."""

from collections.abc import Sequence
from itertools import cycle
from typing import Any

from tests.conformance.promises.driver import Driver, Leased


class MixedDriver:
    """Hands every call to the next driver. Lease tokens are the same text in JSON and gRPC."""

    name = "mixed"

    def __init__(self, drivers: Sequence[Driver]) -> None:
        self._turns = cycle(drivers)
        self._by_token = cycle([driver for driver in drivers if driver.name in ("http", "grpc")])
        self._client = next(driver for driver in drivers if driver.name == "client")

    def __getattr__(self, name: str) -> Any:
        return getattr(next(self._turns), name)

    def settle(self, message: Leased, verb: str, **wishes: Any) -> None:
        driver = next(self._by_token) if isinstance(message.handle, str) else self._client
        driver.settle(message, verb, **wishes)

    def close(self) -> None:
        """Leave the drivers open: they are not its own."""
