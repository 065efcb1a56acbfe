"""Run a command with the tests of ``django.tasks``, which come with the source release of Django.

    python .ci/django_tests.py FOLDER COMMAND ...

The release that is installed here is downloaded by pip, from where it gets every other package. Only
``tests/tasks`` of it is kept, in FOLDER/<version>, whose path the command finds in DJANGO_TASKS_TESTS.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import django


def main(folder: Path, *command: str) -> int:
    """Run the command, and return its exit code."""
    target = folder / django.get_version()
    if not target.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as fresh:
            unpack(download(Path(fresh)), Path(fresh) / "unpacked")
            (Path(fresh) / "unpacked").rename(target)
    environment = {**os.environ, "DJANGO_TASKS_TESTS": str(target)}
    return subprocess.run(command, env=environment, check=False).returncode


def download(folder: Path) -> Path:
    """Download the source release, and return its path."""
    # Without --no-build-isolation, pip would create an environment only to ask the release for its metadata.
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-binary", "django"]
    what = f"Django=={django.get_version()}"
    subprocess.run([sys.executable, "-m", "pip", "download", *options, "--dest", folder, what], check=True)
    (archive,) = folder.glob("*.tar.gz")
    return archive


def unpack(archive: Path, target: Path) -> None:
    """Unpack ``tests/tasks`` of the release as the package ``tasks``."""
    with tarfile.open(archive) as release:
        for member in release:
            parts = Path(member.name).parts
            if parts[1:3] == ("tests", "tasks") and member.isfile():
                member.name = str(Path(*parts[2:]))
                release.extract(member, target, filter="data")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve(), *sys.argv[2:]))
