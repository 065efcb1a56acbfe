"""Secrets that are created when they are first used, and kept in a file that only its owner can read."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path


def kept_secret(path: Path, make: Callable[[], str]) -> str:
    """Return the secret in the file at `path`. If there is no such file, create it.

    The secret is written to another file and then linked to `path`, so that two processes that start at the
    same time get the same secret.
    """
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f"{path.name}.{os.getpid()}")
        with open(draft, "w", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(make())
        try:
            os.link(draft, path)  # unlike a rename, this does not replace the file of another process
        except FileExistsError:
            pass
        finally:
            draft.unlink()
    return path.read_text()
