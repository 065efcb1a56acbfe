"""Memory behind a file descriptor that a child process inherits. It is not a file in any directory."""

from __future__ import annotations

import os
import tempfile

__all__ = ["new_memory", "read_memory", "write_memory"]


def new_memory(name: str) -> int:
    """Return a descriptor of new, empty memory; ``name`` is only shown by tools that list open files."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create(name)
    with tempfile.TemporaryFile() as temporary:  # pragma: no cover - not on Linux
        return os.dup(temporary.fileno())


def write_memory(name: str, text: str) -> int:
    """Return a descriptor of new memory that contains a text. Unlike a pipe, it takes any length at once."""
    file = new_memory(name)
    data = memoryview(text.encode())
    while data:
        data = data[os.write(file, data) :]
    return file


def read_memory(file: int) -> str:
    """Return the text behind an inherited descriptor, and close it."""
    with os.fdopen(file, "rb") as memory:
        memory.seek(0)
        return memory.read().decode()
