"""One isolated environment for each contestant, with the packages and versions that its module names.

The environments are made once, in ``var/benchmarks/environments``, and again when the requirements change.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["CannotInstallError", "python_of"]

FOLDER = Path(__file__).resolve().parent.parent / "var" / "benchmarks" / "environments"


class CannotInstallError(Exception):
    """The packages cannot be installed on this machine; the text has the last lines of the installer."""


def python_of(name: str, requirements: Sequence[str]) -> Path:
    """Return the Python of the environment ``name``, which has these packages. Create it if necessary.

    Without requirements this is the Python that runs the benchmark. Raise ``CannotInstallError``.
    """
    if not requirements:
        return Path(sys.executable)
    environment = FOLDER / name
    python, stamp = environment / "bin" / "python", environment / "requirements.sha256"
    wanted = hashlib.sha256("\n".join((sys.version, *requirements)).encode()).hexdigest()
    if stamp.exists() and stamp.read_text() == wanted and python.exists():
        return python
    shutil.rmtree(environment, ignore_errors=True)
    print(f"installing {name}: {', '.join(requirements)}", flush=True)
    uv = shutil.which("uv")
    if uv:
        _run([uv, "venv", "--quiet", "--no-project", "--python", sys.executable, str(environment)])
        _run([uv, "pip", "install", "--quiet", "--python", str(python), *requirements])
    else:
        _run([sys.executable, "-m", "venv", str(environment)])
        _run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements])
    stamp.write_text(wanted)
    return python


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr or done.stdout).strip().splitlines()[-3:]
        raise CannotInstallError(" ".join(last) or f"{command[0]} failed")
