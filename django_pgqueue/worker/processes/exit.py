"""End a worker process even if a task has left threads behind.

Python waits at exit for every thread that is not a daemon, without a limit. Here they get a few seconds.
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

LINGER = 3.0  # seconds; less than what the supervisor adds to the grace period before it kills


def leave_after(main: Callable[[], int]) -> NoReturn:
    """Call `main` and exit with its return code as ``sys.exit`` does, but no later than LINGER afterwards."""
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
            f"threads that its tasks have left running: {', '.join(names)}" if names else "its exit handlers",
        )
    finally:
        os._exit(code)


def _holds_up(thread: threading.Thread) -> bool:
    return not thread.daemon and thread is not threading.main_thread()
