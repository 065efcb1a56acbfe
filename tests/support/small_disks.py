"""A small disk that can be filled: a file system in memory (tmpfs) in place of a folder.

Only root may mount it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["SmallDisk", "lacks_small_disks", "small_disk"]

MEGABYTE = 2**20


class SmallDisk:
    """A file system of some megabytes, mounted at a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ballast = folder / "ballast"

    def fill(self) -> None:
        """Leave no space."""
        with self._ballast.open("ab", buffering=0) as ballast:
            for size in (MEGABYTE, 4096):
                try:
                    while True:
                        ballast.write(bytes(size))
                except OSError:
                    continue

    def free(self) -> None:
        """Undo that."""
        self._ballast.unlink()


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[SmallDisk]:
    """Put the files of the folder on a small disk for the block. Nobody may have them open then."""
    status = folder.stat()
    with tempfile.TemporaryDirectory(dir=folder.parent) as aside:
        subprocess.run(["cp", "-a", f"{folder}/.", aside], check=True)
        _mount("-t", "tmpfs", "-o", f"size={megabytes}m,mode=700", "tmpfs", str(folder))
        try:
            os.chown(folder, status.st_uid, status.st_gid)
            subprocess.run(["cp", "-a", f"{aside}/.", str(folder)], check=True)
            shutil.rmtree(aside)
            yield SmallDisk(folder)
        finally:
            subprocess.run(["umount", str(folder)], check=True, capture_output=True)


def lacks_small_disks() -> str:
    """Return what this machine lacks for it, or nothing."""
    if sys.platform != "linux":
        return "tmpfs"
    with tempfile.TemporaryDirectory() as folder:
        try:
            with small_disk(Path(folder), 1):
                return ""
        except (OSError, subprocess.CalledProcessError):
            return "the right to mount a tmpfs"


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True, capture_output=True)
