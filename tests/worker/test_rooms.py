"""The components of the worker. ``tests/project/test_layers.py`` says which of them may import which."""

from __future__ import annotations

import subprocess
import sys


def test_a_supervisor_has_nothing_in_memory_that_runs_jobs() -> None:
    program = (
        "import django, sys; django.setup()\n"
        "import django_pgqueue.management.commands.runqueueworker\n"
        "print(*[name for name in sys.modules if name.startswith('django_pgqueue.worker.')])"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    rooms = {name.split(".")[2] for name in ended.stdout.split()}
    assert "supervisor" in rooms
    assert rooms.isdisjoint({"executor", "producer", "isolated", "process"})
