"""Sessions that do what an idle worker does: they listen, and they hold the sleepers' lock.

They never look for jobs. So with at least one of them, every enqueue finds that somebody sleeps.
"""

from __future__ import annotations

import selectors
from contextlib import ExitStack, contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING

from .server import connect

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["sleepers"]


@contextmanager
def sleepers(url: str, number: int) -> Iterator[None]:
    """Hold this many sessions. A thread reads their notifications, as workers do."""
    over = Event()
    with ExitStack() as stack, selectors.DefaultSelector() as selector:
        for _ in range(number):
            session = stack.enter_context(connect(url))
            (channel,) = session.execute("SELECT _pgqueue_channel()").fetchone() or ("",)
            session.execute(f'LISTEN "{channel}"')
            # The lock of a worker that serves every queue (worker/producer/idle.py).
            session.execute("SELECT pg_advisory_lock_shared(_pgqueue_lock_key('sleep', ''))")
            selector.register(session.fileno(), selectors.EVENT_READ, session.pgconn)

        def read() -> None:
            while not over.is_set():
                for key, _ in selector.select(0.1):
                    key.data.consume_input()
                    while key.data.notifies():
                        pass

        thread = Thread(target=read)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
