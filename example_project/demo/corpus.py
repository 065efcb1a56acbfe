"""The files that the demonstration indexes: those of the Python that runs it, a few that must fail, and a
large one.
"""

from __future__ import annotations

import os
import random
import shutil
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from example_project.project.places import VAR
from example_project.search.reading import MAX_BYTES

SUFFIXES = frozenset({".htm", ".html", ".md", ".py", ".rst", ".txt"})
LIMIT = 4000  # files; two cores index them in well under a minute
HANDBOOK = "handbook.txt"
SYLLABLES = (
    "ba",
    "der",
    "fin",
    "gol",
    "hum",
    "ka",
    "lor",
    "mi",
    "nes",
    "pu",
    "ra",
    "sto",
    "tel",
    "vu",
    "zen",
)


def surprises() -> Path:
    """Return the folder of the files that are made for the run. The next run replaces them."""
    return VAR / "surprises"


def roots() -> list[Path]:
    """Return the folders to index: the surprises, the standard library and site-packages, each one once."""
    paths = sysconfig.get_paths()
    folders = [Path(paths[name]).resolve() for name in ("stdlib", "purelib", "platlib")]
    return [surprises(), *dict.fromkeys(folders)]


@contextmanager
def surprising_files() -> Iterator[None]:
    """Create files that a walk finds but a job cannot index, and a large one that it can.

    At the end of the block, delete one of those that fail.
    """
    folder = surprises()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "gone.txt").write_text("Deleted after it was enqueued.")
    (folder / "picture.txt").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR")
    (folder / "huge.txt").write_text("word " * (MAX_BYTES // 5 + 1))
    (folder / HANDBOOK).write_text(_handbook())
    if os.geteuid():  # root can read every file
        (folder / "secret.txt").write_text("Nobody may read this.")
        (folder / "secret.txt").chmod(0)
    yield
    (folder / "gone.txt").unlink()


def _handbook() -> str:
    """Return a text of nearly the largest size that is indexed, which is the same in every run."""
    choose = random.Random(1)
    words = ["".join(choose.choices(SYLLABLES, k=length)) for length in (1, 2, 2, 3, 3, 3, 4) * 1000]
    text = "The handbook of everything\n\n"
    lines = []
    size = MAX_BYTES - 200
    while size > 0:
        lines.append(" ".join(choose.choices(words, k=12)))
        size -= len(lines[-1]) + 1
    return text + "\n".join(lines)
