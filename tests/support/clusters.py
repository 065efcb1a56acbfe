"""The data of a new server, which the servers of single tests are copied from: a copy is quicker than initdb.

The run keeps a copy of the data of its own server, from before the first start, in a folder that the
environment names. All pytest workers use it. A run on a server that DATABASE_URL names has no such data, and
runs initdb for each server.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

from example_project import embedded
from example_project.embedded_programs import run

__all__ = ["copied_clusters", "copy_data", "kept_cluster", "remove_cluster"]

FOLDER = "TEST_CLUSTER"


@contextmanager
def kept_cluster(folder: Path) -> Iterator[None]:
    """Keep a copy of the data that initdb creates in this block."""

    def run_and_keep(program: str, *arguments: str) -> str:
        said = run(program, *arguments)
        if program == "initdb":
            (password,) = (option for option in arguments if option.startswith("--pwfile="))
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(mode=0o700)
            copy_data(arguments[1], folder / "data")
            (folder / "password").write_text(Path(password.partition("=")[2]).read_text())
            os.environ[FOLDER] = str(folder)
        return said

    with patch.object(embedded, "run", run_and_keep):
        yield


@contextmanager
def copied_clusters() -> Iterator[None]:
    """Copy that data wherever a server is created in this block. So all have the same password."""
    if FOLDER not in os.environ:
        yield
        return
    kept = Path(os.environ[FOLDER])
    password = (kept / "password").read_text()

    def copy(program: str, *arguments: str) -> str:
        if program != "initdb":
            return run(program, *arguments)
        copy_data(f"{kept}/data/.", arguments[1])
        return ""

    secrets = SimpleNamespace(token_hex=lambda size: password)
    with patch.object(embedded, "run", copy), patch.object(embedded, "secrets", secrets):
        yield


def remove_cluster() -> None:
    """Delete the data that was kept."""
    if folder := os.environ.pop(FOLDER, ""):
        shutil.rmtree(folder)


def copy_data(source: str | Path, target: str | Path) -> None:
    """Copy the data of a server that does not run."""
    subprocess.run(["cp", "-a", str(source), str(target)], check=True)  # keeps the owner and the permissions
