"""The end of a worker process, which no thread that a task has left behind may hold up.

Python waits at its end for every thread that is not a daemon, for ever. They get some seconds.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["LINGER", "leave_after"]

logger = logging.getLogger(__name__)

LINGER = 3.0  # seconds; less than what the supervisor adds to the grace before it kills


def leave_after(main: Callable[[], int]) -> NoReturn:
    """Call `main` and exit with the code that it returns, as ``sys.exit`` does, but not later than LINGER."""
    code = 1
    try:
        code = main()
    finally:
        timer = threading.Timer(LINGER, _force, [code])
        timer.daemon = True
        timer.start()
    sys.exit(code)


def _force(code: int) -> None:
    try:
        names = [thread.name for thread in threading.enumerate() if _holds_up(thread)]
        logger.warning(
            "this process does not wait any longer for %s",
            f"the threads that its tasks have left: {', '.join(names)}" if names else "its exit handlers",
        )
    finally:
        os._exit(code)


def _holds_up(thread: threading.Thread) -> bool:
    return not thread.daemon and thread is not threading.main_thread()
