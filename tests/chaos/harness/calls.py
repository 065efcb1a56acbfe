"""Call a function in a process of its own, as a web process with another environment would.

    python -m tests.chaos.harness.calls PATH ARGUMENTS

ARGUMENTS are a list in JSON, and so is what the function returns.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

__all__ = ["called"]


def called(env: Mapping[str, str], path: str, *arguments: Any) -> Any:
    """Return what the function at a path returns in a new process on the current databases."""
    from tests.support.commands import ROOT, django_environment  # it imports models

    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos.harness.calls", path, json.dumps(arguments)],
        cwd=ROOT, env={**django_environment(), **env}, check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def main(path: str, arguments: str) -> None:
    """Call it, and print the answer."""
    import django

    django.setup()
    from django.utils.module_loading import import_string

    print(json.dumps(import_string(path)(*json.loads(arguments))))


if __name__ == "__main__":
    main(*sys.argv[1:])
