"""The files that the page about deployment shows: the command's own parser takes their command lines, their
formats are read by what reads them, and nobody sends SIGKILL before the grace is over.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.core.management import load_command_class

from django_pgqueue.worker.supervisor.supervisor import KILL_AFTER

FILES = Path(__file__).resolve().parents[2] / "docs" / "examples" / "deployment"
HEROKU = 30.0  # seconds from SIGTERM to SIGKILL


def unit() -> dict[str, dict[str, str]]:
    """The sections of the systemd unit."""
    parser = ConfigParser(strict=False, interpolation=None, delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment, method-assign]  # keys have capitals
    parser.read_string((FILES / "pgqueue-worker.service").read_text())
    return {name: dict(parser[name]) for name in parser.sections()}


def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((FILES / "compose.yaml").read_text())["services"]["worker"]
    return found


def pod() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((FILES / "kubernetes.yaml").read_text())["spec"]["template"]
    return found


def procfile() -> dict[str, str]:
    lines = (FILES / "Procfile").read_text().splitlines()
    found = [re.fullmatch(r"([A-Za-z0-9_-]+):\s*(\S.*)", line) for line in lines]
    assert all(found)
    return {match[1]: match[2] for match in found if match}


def docker_command() -> list[str]:
    """CMD in its exec form, which is JSON: in the other one a shell would be process 1."""
    (command,) = re.findall(r"^CMD (.*)$", (FILES / "Dockerfile").read_text(), re.MULTILINE)
    words: list[str] = json.loads(command)
    return words


def command_lines() -> dict[str, list[str]]:
    return {
        "systemd": shlex.split(unit()["Service"]["ExecStart"]),
        "docker": docker_command(),
        "compose": compose()["command"],
        "kubernetes": pod()["spec"]["containers"][0]["command"],
        "procfile": shlex.split(procfile()["worker"]),
    }


def options(name: str) -> Any:
    """What the command makes of the command line. Raises CommandError for what it does not know."""
    python, manage, command, *arguments = command_lines()[name]
    assert Path(python).name == "python"
    assert (manage, command) == ("manage.py", "runqueueworker")
    parser = load_command_class("django_pgqueue", command).create_parser(manage, command)
    return parser.parse_args(arguments)


@pytest.mark.parametrize("name", ["systemd", "docker", "compose", "kubernetes", "procfile"])
def test_the_command_takes_the_options(name: str) -> None:
    assert options(name).threads >= 1


def patience() -> dict[str, float]:
    """Seconds from SIGTERM to SIGKILL."""
    (compose_seconds,) = re.fullmatch(r"(\d+)s", compose()["stop_grace_period"]).groups()  # type: ignore[union-attr]
    return {
        "systemd": float(unit()["Service"]["TimeoutStopSec"]),
        "compose": float(compose_seconds),
        "kubernetes": float(pod()["spec"]["terminationGracePeriodSeconds"]),
        "procfile": HEROKU,
    }


@pytest.mark.parametrize("name", ["systemd", "compose", "kubernetes", "procfile"])
def test_nobody_is_killed_within_the_grace(name: str) -> None:
    assert patience()[name] > options(name).grace + KILL_AFTER


def test_the_unit_says_what_the_page_explains() -> None:
    service = unit()["Service"]
    assert (service["Type"], service["KillMode"], service["Restart"]) == ("notify", "mixed", "always")


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("there is no systemd-analyze here")
    text = (FILES / "pgqueue-worker.service").read_text()
    here = text.replace("/srv/mysite/.venv/bin/python", sys.executable)  # it looks whether that is there
    for written, complaints in ((here, False), (here.replace("KillMode=mixed", "KillMode=mixt"), True)):
        copy = tmp_path / "pgqueue-worker.service"
        copy.write_text(written)
        done = subprocess.run([analyze, "verify", "--man=no", str(copy)], check=False, text=True,
                              capture_output=True, timeout=60)  # fmt: skip
        if done.returncode and copy.name not in done.stderr:
            pytest.skip(f"systemd-analyze does not work here: {done.stderr[:200]}")
        assert (copy.name in done.stderr) == complaints, done.stderr


def test_the_memory_fits_into_the_limit_of_the_container() -> None:
    container = pod()["spec"]["containers"][0]
    (gibibytes,) = re.fullmatch(r"(\d+)Gi", container["resources"]["limits"]["memory"]).groups()  # type: ignore[union-attr]
    given = options("kubernetes")
    supervisor = 100  # megabytes; the page says what a small project takes
    assert given.max_memory * given.processes + supervisor < int(gibibytes) * 1024
