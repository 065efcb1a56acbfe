"""Secrets that are made at first use and kept in a file that only its owner can read."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path


def kept_secret(path: Path, make: Callable[[], str]) -> str:
    """The secret in the file at `path`, made and written there if there is none.

    Written beside and linked into place, so that of two processes that start together both get the same.
    """
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f"{path.name}.{os.getpid()}")
        with open(draft, "w", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(make())
        try:
            os.link(draft, path)  # unlike a rename, it does not replace what another process made
        except FileExistsError:
            pass
        finally:
            draft.unlink()
    return path.read_text()
