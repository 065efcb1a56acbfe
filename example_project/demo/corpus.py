"""What the demonstration indexes: the Python that runs it, and a few files that must fail."""

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
LIMIT = 4000  # files: thousands, and done well within a minute on two cores


def surprises() -> Path:
    """The folder of the files that must fail; always the same one, so that the next run replaces it."""
    return VAR / "surprises"


def roots() -> list[Path]:
    """The surprises, then the standard library and site-packages of this Python, none of them twice."""
    paths = sysconfig.get_paths()
    folders = [Path(paths[name]).resolve() for name in ("stdlib", "purelib", "platlib")]
    return [surprises(), *dict.fromkeys(folders)]


@contextmanager
def surprising_files() -> Iterator[None]:
    """Files that a walk finds and a job cannot index; at the end of the block, one of them vanishes."""
    folder = surprises()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "gone.txt").write_text("Deleted after it was enqueued.")
    (folder / "picture.txt").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR")
    (folder / "huge.txt").write_text("word " * (MAX_BYTES // 5 + 1))
    if os.geteuid():  # root reads everything
        (folder / "secret.txt").write_text("Nobody may read this.")
        (folder / "secret.txt").chmod(0)
    yield
    (folder / "gone.txt").unlink()
