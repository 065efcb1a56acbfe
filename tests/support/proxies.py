"""A TCP proxy between clients and a server: it delays, forgets and resets connections.

A proxy that *forgets* a connection reads what arrives from both ends and drops it. So both ends find that
everything is acknowledged, and neither hears that nothing arrives.
"""

from __future__ import annotations

import random
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from time import sleep

CHUNK = 65536
STARTED = 100
"""Bytes, after which a client has said its name. It asks for encryption before that."""


class Link:
    """A connection of a client, with its connection to the server."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self.is_forgotten = False
        self.started = b""
        """What the client has sent first: the parameters of its connection."""
        self._proxy = proxy
        self._ends = (client, server)
        self._open = 2
        proxy.links.add(self)
        for source, target in [(client, server), (server, client)]:
            threading.Thread(target=self._pump, args=(source, target), daemon=True).start()

    def reset(self) -> None:
        """Reset both connections (RST)."""
        self._proxy.links.discard(self)
        self.is_forgotten = True
        for end in self._ends:
            with suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                # A thread that reads keeps the socket open, so the reset would wait for it.
                end.shutdown(socket.SHUT_RD)
            end.close()

    def close_one_way(self) -> None:
        """Tell the server that nothing more comes, and go on to pass on its answers."""
        with suppress(OSError):
            self._ends[1].shutdown(socket.SHUT_WR)

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError, ValueError):
            while data := source.recv(CHUNK):
                if source is self._ends[0] and len(self.started) < STARTED:
                    self.started += data
                if self._proxy.delay:
                    sleep(random.uniform(*self._proxy.delay))
                if not self.is_forgotten:
                    target.sendall(data)
            if not self.is_forgotten:
                target.shutdown(socket.SHUT_WR)
        self._open -= 1
        if not self._open:
            self._proxy.links.discard(self)
            for end in self._ends:
                end.close()


class Proxy:
    """Accepts connections at `port`, and connects each of them to the server."""

    def __init__(self, host: str, port: int) -> None:
        self.delay: tuple[float, float] | None = None
        """Seconds by which each packet is late."""
        self.links: set[Link] = set()
        self._server = (host, port)
        self.port = 0
        self.open_door()

    def open_door(self) -> None:
        """Accept connections, again at the same port."""
        self._listener = socket.create_server(("127.0.0.1", self.port), backlog=200)
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def close_door(self) -> None:
        """Accept no more connections."""
        # A thread that accepts keeps the socket open.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def close(self) -> None:
        """Accept no more, and close all connections."""
        with suppress(OSError):
            self.close_door()
        for link in list(self.links):
            link.reset()

    def forget(self, name: bytes = b"") -> list[Link]:
        """Forget all connections that are open and were opened with this name, and return them."""
        forgotten = [link for link in list(self.links) if name in link.started and not link.is_forgotten]
        for link in forgotten:
            link.is_forgotten = True
        return forgotten

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                try:
                    server = socket.create_connection(self._server)
                except OSError:
                    client.close()
                    continue
                for end in (client, server):
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                Link(self, client, server)


@contextmanager
def proxy(host: str, port: int) -> Iterator[Proxy]:
    """Run a proxy in front of this server for the block."""
    made = Proxy(host, port)
    try:
        yield made
    finally:
        made.close()
