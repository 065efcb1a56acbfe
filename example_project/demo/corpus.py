"""The files that the demonstration indexes: those of the Python that runs it, and a few that must fail."""

from __future__ import annotations

import os
import shutil
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from example_project.project.places import VAR
from example_project.search.reading import MAX_BYTES

SUFFIXES = frozenset({".htm", ".html", ".md", ".py", ".rst", ".txt"})
LIMIT = 4000  # files; two cores index them in well under a minute


def surprises() -> Path:
    """Return the folder of the files that must fail. It never changes, so the next run replaces it."""
    return VAR / "surprises"


def roots() -> list[Path]:
    """Return the folders to index: the surprises, the standard library and site-packages, each one once."""
    paths = sysconfig.get_paths()
    folders = [Path(paths[name]).resolve() for name in ("stdlib", "purelib", "platlib")]
    return [surprises(), *dict.fromkeys(folders)]


@contextmanager
def surprising_files() -> Iterator[None]:
    """Create files that a walk finds but a job cannot index. At the end of the block, delete one of them."""
    folder = surprises()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "gone.txt").write_text("Deleted after it was enqueued.")
    (folder / "picture.txt").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR")
    (folder / "huge.txt").write_text("word " * (MAX_BYTES // 5 + 1))
    if os.geteuid():  # root can read every file
        (folder / "secret.txt").write_text("Nobody may read this.")
        (folder / "secret.txt").chmod(0)
    yield
    (folder / "gone.txt").unlink()
