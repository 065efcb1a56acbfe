"""A web process of either release: it enqueues jobs, cancels some, and reads results until it is told to end.

    python -P <this file> <first number> <transactions in a second>

It runs in the folder of its release, with that folder as ``PYTHONPATH``. So it uses only what both have.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from datetime import timedelta
from random import Random

import django


def main(first: int, rate: float) -> None:
    """Enqueue until the process is told to end. An error ends it."""
    django.setup()
    from django.db import connections

    from django_pgqueue import cancel
    from django_pgqueue.models import Job
    from tests.app import ledger_tasks as tasks
    from tests.chaos.harness.ledger import COMMITTED, FOLDER, IN_DOUBT, ROLLED_BACK, Ledger
    from tests.chaos.harness.load import Load, mixed

    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    choice = Random(first)
    load = Load(Ledger(os.environ[FOLDER]), choice, rate=rate, backlog=0)
    later = tasks.sync_effect.using(run_after=timedelta(hours=1))
    number = first
    while not stop.wait(1 / rate):
        numbers = list(range(number, number + choice.choice([1, 1, 3])))
        number += len(numbers) + 1
        calls = [mixed(each, choice) for each in numbers]
        is_rolled_back = choice.random() < 0.1
        outcome = load.transact(numbers, calls, is_rolled_back=is_rolled_back)
        assert outcome == (ROLLED_BACK if is_rolled_back else COMMITTED), outcome
        if choice.random() < 0.2:
            outcome = load.transact([number - 1], [later.bind(number - 1, 0.0)], expects="cancelled")
            assert outcome != IN_DOUBT
            assert cancel(Job.objects.get(args__0=number - 1)) == 1
        for job in Job.objects.order_by("-pk")[:3]:  # each column, with the names of this release
            assert job.result is None
    connections.close_all()


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
