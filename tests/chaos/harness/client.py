"""The load of another process, which enqueues jobs as a web process does until its standard input is closed.

    python -m tests.chaos.harness.client MIX FIRST RATE BACKLOG SEED

MIX is the path of a mix (``load``), and FIRST is the number of the first job.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from random import Random

ROOT = Path(__file__).resolve().parents[3]


@contextmanager
def client(env: Mapping[str, str], *arguments: object) -> Iterator[subprocess.Popen[bytes]]:
    """Run the process for the duration of the block. An error of the process is raised at the end."""
    from tests.support.commands import databases

    settings = {
        "DJANGO_SETTINGS_MODULE": "tests.processes.settings",
        "TEST_DATABASES": json.dumps(databases()),
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.chaos.harness.client", *map(str, arguments)],
        cwd=ROOT, env={**os.environ, **settings, **env}, stdin=subprocess.PIPE,
    )  # fmt: skip
    try:
        yield process
    finally:
        assert process.stdin is not None
        process.stdin.close()
        code = process.wait(60)
    assert code == 0, f"the client ended with {code}"


def main(mix: str, first: str, rate: str, backlog: str, seed: str) -> None:
    """Enqueue until standard input ends."""
    import django

    django.setup()
    from django.utils.module_loading import import_string

    from .ledger import FOLDER, Ledger
    from .load import Load

    ledger = Ledger(os.environ[FOLDER])
    load = Load(
        ledger, Random(seed), rate=float(rate), backlog=int(backlog), mix=import_string(mix), first=int(first)
    )
    with load.running():
        sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
