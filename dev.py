#!/usr/bin/env python3
"""The commands of a checkout. You do not need to install or start anything first.

    python3 dev.py demo [options]      run the demonstration of the example project (--help for its options)
    python3 dev.py test [options]      run the tests; options are passed to pytest
    python3 dev.py chaos [options]     make faults under load, and check that nothing is lost (--help)
    python3 dev.py failover [options]  lose the leader of three servers under Patroni, and count (--help)
    python3 dev.py shards [options]    add and drain shards under load and kills, and count (--help)
    python3 dev.py mutate [options]    take out one guard at a time, and check that a test notices (--help)
    python3 dev.py screenshots         draw the pictures of the admin for the docs, with Chromium
    python3 dev.py bench [options]     measure this queue and others (--help for its options)
    python3 dev.py examples            write the tested examples and the docstrings into the pages
    python3 dev.py messages            write the messages that are to be translated into the catalogs
    python3 dev.py promises            write the page about what is promised and which tests hold it
    python3 dev.py release check       say what a release still lacks (rehearse: take its steps in a clone)
    python3 dev.py manage COMMAND ...  run another command of the example project, such as seed_demo

Each command creates the environment .venv if necessary, and then runs in it. If DATABASE_URL is set, it names
the database. Otherwise a PostgreSQL server of the checkout's own is started.

This script uses the standard library only, and no syntax newer than Python 3.6, so that any python3 can run
it and print what is missing. The environment itself uses the newest working Python from 3.12 on, or
Python 3.11 with Django 5.2.
"""

import glob
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from typing import Any, Dict, Iterator, List, NoReturn, Optional

ROOT = os.path.dirname(os.path.abspath(__file__))
ENVIRONMENT = os.path.join(ROOT, ".venv")
PYTHON = os.path.join(ENVIRONMENT, "bin", "python")
STAMP = os.path.join(ENVIRONMENT, "dev.json")
MANAGE = os.path.join(ROOT, "example_project", "manage.py")

# For each command: the dependency group that it needs, and the arguments for the environment's Python.
PYTEST = ["-m", "pytest", "--rootdir", ROOT]
COMMANDS = {
    "bench": ("bench", ["-m", "benchmarks"]),
    "chaos": ("chaos", ["-m", "tests.chaos.harness.program"]),
    "demo": ("demo", [MANAGE, "demo"]),
    "examples": ("test", ["-m", "tests.support.examples"]),
    "failover": ("failover", ["-m", "tests.chaos.failover.program"]),
    "manage": ("demo", [MANAGE]),
    "messages": ("test", ["-m", "tests.support.catalogs"]),
    "mutate": ("test", ["-m", "tests.mutations.program"]),
    "promises": ("test", ["-m", "tests.support.promises"]),
    "release": ("release", ["-m", "tests.support.release"]),
    "screenshots": (
        "browser",
        PYTEST + ["-n", "0", "--ds", "tests.browser.settings", "-m", "browser", "tests/browser/pictures.py"],
    ),
    "shards": ("chaos", ["-m", "tests.chaos.shards"]),
    "test": ("test", PYTEST + ["-n", "4", "--dist", "worksteal"]),
}
# The help of the command "demo", which needs neither the environment nor the server.
DEMO_HELP = """usage: python3 dev.py demo [--serve] [--port PORT] [--files FILES]

Index the files of this Python with a real worker, show the progress, and search the files.

  --serve        keep running with search page and admin
  --port PORT    port of the server (default: 8000, or any free port)
  --files FILES  file limit (default: 4000)

It runs in the environment .venv, and on a PostgreSQL server in var/ if DATABASE_URL names none. The first
run makes both, which takes about a minute."""
MINORS = (14, 13, 12, 11)
PROBE = "import sys, ssl, zlib; print(sys.version_info[:2] == (3, %d) and sys.version_info[3] == 'final')"

NO_SPACE = "The disk is full. The environment needs about 400 MB."
NOT_WRITABLE = "The checkout is not writable. Please copy it to a folder that you own."
NO_NETWORK = (
    "The package index cannot be reached. Please check the network, or set another index with PIP_INDEX_URL"
    " (for uv: UV_DEFAULT_INDEX)."
)
TROUBLES = (
    (r"No space left|ENOSPC|[Qq]uota exceeded", NO_SPACE),
    (r"Read-only file system|Permission denied", NOT_WRITABLE),
    (r"NewConnectionError|ProxyError|ConnectTimeout|ReadTimeout|timed out|name resolution", NO_NETWORK),
    (r"[Nn]etwork is unreachable|[Cc]onnection (refused|reset)", NO_NETWORK),
    (r"dns error|error sending request|Failed to fetch|Could not connect", NO_NETWORK),
)


def main() -> None:
    if len(sys.argv) < 2 or sys.argv[1] not in COMMANDS:
        print(__doc__)
        sys.exit(0 if sys.argv[1:] in (["help"], ["-h"], ["--help"]) else 2)
    if sys.argv[1] == "demo" and {"-h", "--help"}.intersection(sys.argv[2:]):
        print(DEMO_HELP)
        return
    if os.name != "posix":
        fail("This system is not supported. On Windows, use WSL.")
    group, command = COMMANDS[sys.argv[1]]
    try:
        if not is_ready(group):
            prepare(group)
        if group in ("bench", "browser", "chaos", "failover", "release", "test"):
            os.chdir(ROOT)
        if group in ("browser", "chaos", "failover", "test"):
            # Lets pytest store each file with rewritten asserts, so that not every pytest worker rewrites it.
            os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    except OSError as error:
        fail("%s. %s" % (error, remedy(str(error)) or "Make sure that the checkout is writable."))
    if sys.argv[1] == "demo":
        say("Starting the database. This takes a few seconds, and about ten the first time.")
    sys.stdout.flush()
    os.execv(PYTHON, [PYTHON] + command + sys.argv[2:])


def is_ready(group: str) -> bool:
    stamp = read_stamp()
    return stamp["project"] == project() and group in stamp["groups"] and os.access(PYTHON, os.X_OK)


def prepare(group: str) -> None:
    """Create or complete the environment, while other commands wait. This never removes packages that a
    running command uses: another command only adds its own packages."""
    import fcntl

    with open(os.path.join(ROOT, ".dev.lock"), "a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("Another dev.py is creating the environment, waiting for it.")
            fcntl.flock(lock, fcntl.LOCK_EX)
        if is_ready(group):
            return
        if not os.access(PYTHON, os.X_OK) or read_stamp()["project"] is None:
            make_environment()
        stamp = read_stamp()
        if stamp["project"] == project():
            what, groups = [], stamp["groups"]
        else:
            what, groups = ["--editable", "."], []
            write_stamp("", [])
        say("Installing the packages for `%s`. This takes about a minute the first time." % sys.argv[1])
        install(what + ["--group", group])
        write_stamp(project(), groups + [group])


def make_environment() -> None:
    """Create a new, empty .venv. A .venv that this script did not create is not touched."""
    if os.path.isfile(ENVIRONMENT):
        os.remove(ENVIRONMENT)  # not an environment, but a file in which a tool noted its path (PEP 832)
    elif os.path.lexists(ENVIRONMENT):
        if not os.path.exists(STAMP):
            fail("%s was not made by this script. Please move it away, then try again." % ENVIRONMENT)
        shutil.rmtree(ENVIRONMENT)
    uv = shutil.which("uv")
    python = find_interpreter(needs_pip=uv is None)
    say("Creating the environment .venv with %s." % python)
    os.mkdir(ENVIRONMENT)
    write_stamp(None, [])  # comes first, so that the remains of a killed run are recognized as ours
    if uv:
        run([uv, "venv", "--quiet", "--no-project", "--allow-existing", "--python", python, ENVIRONMENT])
    else:
        run([python, "-m", "venv", ENVIRONMENT])
        run([PYTHON, "-m", "pip", "install", "--quiet", "--upgrade", "pip>=25.1"])  # supports --group
    write_stamp("", [])


def install(what: List[str]) -> None:
    uv = shutil.which("uv")
    if uv:
        run([uv, "pip", "install", "--quiet", "--python", PYTHON] + what)
    else:
        run([PYTHON, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"] + what)


def find_interpreter(needs_pip: bool) -> str:
    """Return the newest Python that works. Each candidate is run, because a shim may only print an error."""
    without_venv = []
    for minor in MINORS:
        for path in candidates(minor):
            if answer(path, PROBE % minor) != "True":
                continue
            if not needs_pip or answer(path, "import ensurepip, venv; print(True)") == "True":
                return path
            without_venv.append("python3.%d" % minor)
    if without_venv:
        fail(
            "%s has no venv module. On Debian and Ubuntu, run: apt install %s-venv. Or install uv."
            % (without_venv[0], without_venv[0])
        )
    return fail(
        "Python 3.11 or newer is needed, preferably 3.12. This is Python %s, and no other one was found on"
        " the PATH or in ~/.pyenv. Install one, for example: pyenv install 3.13." % sys.version.split()[0]
    )


def candidates(minor: int) -> Iterator[str]:
    pyenv = os.environ.get("PYENV_ROOT") or os.path.expanduser("~/.pyenv")
    versions = glob.glob(os.path.join(pyenv, "versions", "3.%d.*" % minor, "bin"))
    versions.sort(key=lambda folder: [int(number) for number in re.findall(r"\d+", folder)], reverse=True)
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep) + versions:
        path = os.path.join(folder, "python3.%d" % minor)
        if os.access(path, os.X_OK) and os.path.abspath(folder) != os.path.dirname(PYTHON):
            yield path
    if sys.executable and os.path.dirname(sys.executable) != os.path.dirname(PYTHON):
        yield sys.executable


def answer(python: str, code: str) -> str:
    try:
        done = subprocess.run(
            [python, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode(errors="replace").strip()


def run(command: List[str]) -> None:
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        output = done.stdout.decode(errors="replace").strip()
        print("\n".join(output.splitlines()[-15:]), file=sys.stderr)
        fail("%s failed. %s" % (" ".join(command[:4]), remedy(output) or "Its output is above."))


def remedy(output: str) -> str:
    return next((text for pattern, text in TROUBLES if re.search(pattern, output)), "")


def project() -> str:
    """Return a hash of what the environment depends on. If it changes, the project is installed again."""
    with open(os.path.join(ROOT, "pyproject.toml"), "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def read_stamp() -> Dict[str, Any]:
    try:
        with open(STAMP) as file:
            return json.load(file)  # type: ignore[no-any-return]
    except (OSError, ValueError):
        return {"project": None, "groups": []}


def write_stamp(project: Optional[str], groups: List[str]) -> None:
    """`project` is None while the environment is being created, and empty while the project is installed."""
    with open(STAMP + ".new", "w") as file:
        json.dump({"project": project, "groups": groups}, file)
    os.replace(STAMP + ".new", STAMP)


def say(text: str) -> None:
    print("dev.py: " + text, flush=True)


def fail(text: str) -> NoReturn:
    sys.exit("dev.py: " + text)


if __name__ == "__main__":
    main()
