"""Memory behind a descriptor, which a process hands to another by inheritance. No folder has it."""

from __future__ import annotations

import os
import tempfile

__all__ = ["new_memory", "read_memory", "write_memory"]


def new_memory(name: str) -> int:
    """A descriptor of new, empty memory; ``name`` is only for who looks at the process."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create(name)
    with tempfile.TemporaryFile() as temporary:  # pragma: no cover - not on Linux
        return os.dup(temporary.fileno())


def write_memory(name: str, text: str) -> int:
    """A descriptor of new memory that holds a text. Unlike a pipe it takes any length at once."""
    file = new_memory(name)
    data = memoryview(text.encode())
    while data:
        data = data[os.write(file, data) :]
    return file


def read_memory(file: int) -> str:
    """The text behind an inherited descriptor, which is closed."""
    with os.fdopen(file, "rb") as memory:
        memory.seek(0)
        return memory.read().decode()
