"""``python -m django_pgqueue.testing.worker_process``: ``runqueueworker`` on the databases of a test.

The first line of standard input has what the test runner has changed in DATABASES. The end of standard input
means that the test process is gone, and stops the worker.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from threading import Thread

from ..worker.spawn import set_up_django


def main(options: list[str]) -> None:
    """Run the command with these options until it is stopped."""
    from django.core.management import get_commands, load_command_class

    from ..postgres import aliases

    databases = json.loads(sys.stdin.readline())
    set_up_django()
    if databases:
        aliases.apply(databases)
    Thread(target=_stop_at_end_of_input, name="pgqueue-test-watch", daemon=True).start()
    command = load_command_class(get_commands()["runqueueworker"], "runqueueworker")
    command.run_from_argv(["django-admin", "runqueueworker", *options])


def _stop_at_end_of_input() -> None:
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main(sys.argv[1:])
