"""The previous release, taken from the history: the package together with the project of the tests.

``tests/chaos/previous_release`` names its commit, as git does: by a tag, a hash or ``HEAD^{/words of its
message}``. During a deploy the processes of both releases run at the same time, and each runs its own
tasks. All write to the same ledger, so the records of the ledger may gain values from release to release,
and lose none.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tarfile
import tempfile
from functools import cache
from pathlib import Path

from tests.support.commands import ROOT, django_environment

__all__ = [
    "NAME",
    "NO_HISTORY",
    "changed_since",
    "lacks_history",
    "last_migration",
    "manage",
    "previous_release",
]

NAME = (Path(__file__).parents[1] / "previous_release").read_text().strip()


#: What archives and shallow clones do not have. In CI, this is skipped by name, too, unlike missing tools.
NO_HISTORY = "the history of the repository (git fetch --unshallow)"


def lacks_history() -> str:
    """Return what is missing to build the previous release, or nothing."""
    if shutil.which("git") is None:
        return "git"
    if _commit():
        return ""
    is_shallow = _git("rev-parse", "--is-shallow-repository").stdout.strip() != b"false"
    return NO_HISTORY if is_shallow else f"the commit {NAME}, the previous release, in the history"


def previous_release() -> Path:
    """Return the folder with the previous release. It is taken from the history once."""
    commit = _commit()
    folder = ROOT / "var" / "previous" / commit
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        new = Path(tempfile.mkdtemp(dir=folder.parent))
        archive = _git("archive", commit, "django_pgqueue", "tests", "example_project")
        assert archive.returncode == 0, archive.stderr.decode()
        with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
            tar.extractall(new, filter="data")
        try:
            new.rename(folder)
        except OSError:  # another process was faster
            shutil.rmtree(new)
    return folder


def changed_since(*paths: str) -> list[str]:
    """Return the files that have changed, or are gone, since the previous release. New ones do not count."""
    diff = _git("diff", "--name-only", "--no-renames", "--diff-filter=a", _commit(), "--", *paths)
    assert diff.returncode == 0, diff.stderr.decode()
    return diff.stdout.decode().split()


def last_migration(folder: Path) -> str:
    """Return the name of the newest migration of the release in a folder."""
    return max(path.stem for path in (folder / "django_pgqueue" / "migrations").glob("0*.py"))


def manage(*arguments: str, folder: Path = ROOT) -> None:
    """Run a command of Django with the code of a folder, on the current databases."""
    done = subprocess.run(
        [sys.executable, "-m", "django", *arguments],
        cwd=folder, env=django_environment(folder), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@cache
def _commit() -> str:
    return _git("rev-parse", "--quiet", "--verify", f"{NAME}^{{commit}}").stdout.decode().strip()


def _git(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    # The files may belong to another user, as in a container.
    command = ["git", "-c", "safe.directory=*", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
