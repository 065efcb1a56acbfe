"""Call a function in a process of its own, as a web process with another environment would.

    python -m tests.chaos.harness.calls PATH ARGUMENTS

ARGUMENTS are a list in JSON, and so is what the function returns.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from random import Random
from typing import Any


def called(env: Mapping[str, str], path: str, *arguments: Any) -> Any:
    """Return what the function at a path returns in a new process on the current databases."""
    process = _start(env, path, *arguments, stdout=subprocess.PIPE)
    answer, _ = process.communicate()
    assert process.returncode == 0, f"it ended with {process.returncode}, and its log says why"
    return json.loads(answer)


@contextmanager
def client(env: Mapping[str, str], *arguments: Any) -> Iterator[None]:
    """Let another process enqueue during the block, as a web process does (``enqueue_until_told``)."""
    process = _start(env, f"{__name__}.enqueue_until_told", *arguments, stdin=subprocess.PIPE)
    try:
        yield
    finally:
        process.communicate(timeout=60)  # which closes its standard input
    assert process.returncode == 0, f"the client ended with {process.returncode}"


def enqueue_until_told(mix: str, first: int, rate: float, backlog: int, seed: float) -> None:
    """Enqueue calls of the mix at this path, from the number `first` on, until standard input ends."""
    from django.utils.module_loading import import_string

    from .ledger import FOLDER, Ledger
    from .load import Load

    ledger = Ledger(os.environ[FOLDER])
    load = Load(ledger, Random(seed), rate=rate, backlog=backlog, mix=import_string(mix), first=first)
    with load.running():
        sys.stdin.read()


def _start(env: Mapping[str, str], path: str, *arguments: Any, **streams: Any) -> subprocess.Popen[bytes]:
    from tests.support.commands import ROOT, django_environment  # it imports models

    return subprocess.Popen(
        [sys.executable, "-m", "tests.chaos.harness.calls", path, json.dumps(arguments)],
        cwd=ROOT, env={**django_environment(), **env}, **streams,
    )  # fmt: skip


def main(path: str, arguments: str) -> None:
    """Call it, and print the answer."""
    import django

    django.setup()
    from django.utils.module_loading import import_string

    print(json.dumps(import_string(path)(*json.loads(arguments))))


if __name__ == "__main__":
    main(*sys.argv[1:])
