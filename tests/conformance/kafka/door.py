"""A door before a node's Kafka port: it sees whole frames, and may swallow or answer them itself.

A node advertises the door's address (``listen.advertise_kafka``), so clients come through it.
"""

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress

from raftline.chaos.rig import PORT_STEPS

WIRE_STEP = PORT_STEPS[4] - PORT_STEPS[2]  # the rig keeps the port of a wire free, too
Frame = bytes  # without its length
Answer = Callable[["Passage", Frame], bool]  # True: dealt with, it does not go on


class Passage:
    """One client's connection through a door."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client = client
        self.server = server

    def to_client(self, body: Frame) -> None:
        """Send a frame to the client."""
        self.client.sendall(struct.pack(">i", len(body)) + body)

    def to_server(self, body: Frame) -> None:
        """Send a frame to the node."""
        self.server.sendall(struct.pack(">i", len(body)) + body)

    def cut(self) -> None:
        """Hang up on both."""
        for end in (self.client, self.server):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


class Door:
    """Listens before one node until it is closed."""

    def __init__(self, address: str) -> None:
        """Stand before ``address``; ``self.address`` is where clients go."""
        host, port = address.split(":")
        self._server = (host, int(port))
        self._listener = socket.create_server((host, int(port) + WIRE_STEP))
        self.address = f"{host}:{int(port) + WIRE_STEP}"
        self.is_shut = False  # hang up on whoever comes
        self.on_request: Answer | None = None
        self.on_reply: Answer | None = None
        self._passages: list[Passage] = []
        threading.Thread(target=self._listen, daemon=True).start()

    def shut(self) -> None:
        """Hang up on all, and on whoever comes."""
        self.is_shut = True
        for passage in self._passages:
            passage.cut()

    def close(self) -> None:
        """Be gone."""
        self.shut()
        self._listener.close()

    def _listen(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.is_shut:
                client.close()
                continue
            passage = Passage(client, socket.create_connection(self._server))
            self._passages.append(passage)
            for source, on, onward in (
                (client, lambda: self.on_request, passage.to_server),
                (passage.server, lambda: self.on_reply, passage.to_client),
            ):
                threading.Thread(
                    target=self._carry, args=(passage, source, on, onward), daemon=True
                ).start()

    def _carry(
        self,
        passage: Passage,
        source: socket.socket,
        on: Callable[[], Answer | None],
        onward: Callable[[Frame], None],
    ) -> None:
        with suppress(OSError), source.makefile("rb") as stream:
            while len(head := stream.read(4)) == 4:
                body = stream.read(struct.unpack(">i", head)[0])
                answer = on()
                if answer is None or not answer(passage, body):
                    onward(body)
        passage.cut()
