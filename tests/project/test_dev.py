"""dev.py in a separate checkout, with programs that only record how they were called; and .ci/audit.py."""

from __future__ import annotations

import ast
import importlib
import os
import re
import runpy
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from django.core.management import BaseCommand, load_command_class

SCRIPT = Path(__file__).resolve().parents[2] / "dev.py"

# Behaves like a working Python. `-m venv` creates an environment with a copy of it, and all other calls are
# recorded. If the file `hold` exists, an installation waits for it. If `failure` exists, it fails with its
# text.
INTERPRETER = """#!/bin/sh
case "$*" in
-c*) echo True ;;
"-m venv "*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
*)
    echo "$*" >> "{checkout}/calls"
    case "$*" in *install*)
        if [ -e "{checkout}/hold" ]; then cat "{checkout}/hold"; fi
        if [ -e "{checkout}/failure" ]; then cat "{checkout}/failure"; exit 1; fi ;;
    esac ;;
esac
"""

UV = """#!/bin/sh
case "$*" in
venv*"--python {programs}/python3.14"*)
    mkdir "{checkout}/.venv/bin" && cp "{programs}/python3.14" "{checkout}/.venv/bin/python" ;;
*) echo "uv $*" >> "{checkout}/calls" ;;
esac
"""


@dataclass
class Checkout:
    root: Path
    environment: dict[str, str]

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, str(self.root / "dev.py"), *arguments],
            env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    def run(self, *arguments: str) -> tuple[int, str]:
        with self.start(*arguments) as process:
            output = process.communicate(timeout=60)[0]
            return process.returncode, output

    def calls(self) -> list[str]:
        path = self.root / "calls"
        calls = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return calls

    def installs(self) -> list[str]:
        """Return the dependency groups that were installed since the last call."""
        return [call.rpartition(" ")[2] for call in self.calls() if "--group" in call]


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    root, programs = tmp_path / "checkout", tmp_path / "bin"
    root.mkdir()
    programs.mkdir()
    (root / "dev.py").write_bytes(SCRIPT.read_bytes())
    (root / "pyproject.toml").write_text("one")
    interpreter = programs / "python3.14"
    interpreter.write_text(INTERPRETER.format(checkout=root))
    interpreter.chmod(0o755)
    for name in ("cat", "cp", "mkdir"):
        (programs / name).symlink_to(shutil.which(name) or name)
    return Checkout(root, {**os.environ, "PATH": str(programs), "PYENV_ROOT": str(tmp_path / "none")})


@pytest.fixture
def dev() -> Any:
    return importlib.import_module("dev")


def test_an_old_python_can_read_it_and_it_needs_nothing_else() -> None:
    tree = ast.parse(SCRIPT.read_text(), feature_version=(3, 6))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {name for node in imports for name in ([each.name for each in node.names]
             if isinstance(node, ast.Import) else [node.module or ""])}  # fmt: skip
    assert {name.split(".")[0] for name in names} <= sys.stdlib_module_names


def test_an_environment_is_made_once_and_packages_are_added(checkout: Checkout) -> None:
    code, output = checkout.run("test", "-k", "one")
    assert code == 0, output
    *installs, handed_over = checkout.calls()
    assert installs[-1].endswith("--editable . --group test")
    assert handed_over == f"-m pytest --rootdir {checkout.root} -n 4 --dist worksteal -k one"
    assert checkout.run("test") == (0, "")
    assert checkout.installs() == []
    code, output = checkout.run("demo", "--serve")
    said = re.findall(r"^dev\.py: (\w+ the \w+)", output, re.MULTILINE)  # what the first seconds wait for
    assert (code, said) == (0, ["Installing the packages", "Starting the database"])
    *_, install, handed_over = checkout.calls()
    assert install == "-m pip install --quiet --disable-pip-version-check --group demo"
    assert handed_over == f"{checkout.root}/example_project/manage.py demo --serve"
    (checkout.root / "pyproject.toml").write_text("two")
    checkout.run("test")
    assert checkout.calls()[0].endswith("--editable . --group test")
    checkout.run("demo")
    assert checkout.installs() == ["demo"]
    (checkout.root / ".venv/bin/python").unlink()
    assert checkout.run("test")[0] == 0
    assert checkout.installs() == ["test"]


def test_uv_is_used_where_there_is_one(checkout: Checkout, tmp_path: Path) -> None:
    uv = tmp_path / "bin/uv"
    uv.write_text(UV.format(checkout=checkout.root, programs=tmp_path / "bin"))
    uv.chmod(0o755)
    code, output = checkout.run("test")
    assert code == 0, output
    python = f"{checkout.root}/.venv/bin/python"
    assert checkout.calls()[0] == f"uv pip install --quiet --python {python} --editable . --group test"


def test_two_at_once_make_one_environment(checkout: Checkout) -> None:
    hold = checkout.root / "hold"
    os.mkfifo(hold)
    gate = os.open(hold, os.O_RDWR)
    first = checkout.start("test")
    assert first.stdout is not None
    assert "Creating" in first.stdout.readline()
    second = checkout.start("test")
    assert second.stdout is not None
    assert "waiting" in second.stdout.readline()
    hold.unlink()
    os.close(gate)
    for process in (first, second):
        process.communicate(timeout=60)
        assert process.returncode == 0
    assert checkout.installs() == ["test"]


@pytest.mark.parametrize(("words", "remedy"), [
    ("what went wrong", "what went wrong"),
    ("NewConnectionError(... Temporary failure in name resolution)", "check the network"),
    ("error: dns error: failed to lookup address", "check the network"),
    ("ERROR: Could not install packages due to an OSError: No space left on device", "disk is full"),
    ("[Errno 30] Read-only file system: '.venv'", "copy it to a folder"),
])  # fmt: skip
def test_an_installation_that_fails_says_what_to_do_and_is_tried_again(
    checkout: Checkout, words: str, remedy: str
) -> None:
    failure = checkout.root / "failure"
    failure.write_text(words)
    code, output = checkout.run("test")
    assert (code, remedy in output, "Traceback" in output) == (1, True, False)
    assert remedy == words or remedy in output.splitlines()[-1]
    failure.unlink()
    if remedy == words:
        assert checkout.run("test")[0] == 0
        assert checkout.installs()[-1] == "test"


@pytest.mark.parametrize(("path", "text", "code", "words"), [
    pytest.param(".venv/precious", "", 1, "not made by this script", id="an environment of somebody else"),
    pytest.param(".venv/dev.json", '{"project": null, "groups": []}', 0, "Installing", id="a killed run"),
    pytest.param(".venv", ".tox/py313", 0, "Installing", id="a tool's note of another environment"),
    # Permissions do not keep root from writing, but a folder does.
    pytest.param(".dev.lock/folder", "", 1, "dev.py: ", id="no writing"),
])  # fmt: skip
def test_what_was_there_before(checkout: Checkout, path: str, text: str, code: int, words: str) -> None:
    place = checkout.root / path
    place.parent.mkdir(exist_ok=True)
    place.write_text(text)
    found, output = checkout.run("test")
    assert (found, words in output) == (code, True), output
    assert place.exists() or code == 0


@pytest.mark.parametrize(
    ("arguments", "code"), [([], 2), (["dance"], 2), (["--help"], 0), (["demo", "--help"], 0)]
)
def test_usage(checkout: Checkout, arguments: list[str], code: int) -> None:
    assert checkout.run(*arguments)[0] == code
    assert not (checkout.root / ".venv").exists()


def test_the_help_of_the_demo_has_its_options(dev: Any) -> None:
    own = load_command_class("example_project.demo", "demo").create_parser("manage.py", "demo")
    others = {
        name for action in BaseCommand().create_parser("", "")._actions for name in action.option_strings
    }
    for action in own._actions:
        if names := {*action.option_strings} - others:
            line = rf"^  {names.pop()}( {action.dest.upper()})? +{re.escape(str(action.help))}$"
            assert re.search(line, dev.DEMO_HELP, re.MULTILINE), action.dest


def test_a_shim_that_answers_with_an_error_is_passed_over(checkout: Checkout, tmp_path: Path) -> None:
    shim = tmp_path / "bin/python3.14"
    shutil.copy(shim, tmp_path / "bin/python3.13")
    shim.write_text("#!/bin/sh\necho 'python3.14: command not found' >&2\nexit 127\n")
    next_newest = "bin/python3.13" if sys.version_info < (3, 14) else sys.executable
    assert next_newest in checkout.run("test")[1].splitlines()[0]


def test_interpreters_in_pyenv_s_folders_are_found(checkout: Checkout, tmp_path: Path) -> None:
    for version in ("3.14.2", "3.14.10"):
        folder = tmp_path / "none/versions" / version / "bin"
        folder.mkdir(parents=True)
        shutil.copy(tmp_path / "bin/python3.14", folder)
    (tmp_path / "bin/python3.14").unlink()
    assert "3.14.10/bin/python3.14" in checkout.run("test")[1].splitlines()[0]


def test_python_too_old(dev: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dev, "candidates", lambda minor: [])
    with pytest.raises(SystemExit, match=r"Python 3.11 or newer is needed.*pyenv install"):
        dev.find_interpreter(needs_pip=True)


def test_no_venv_module(dev: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dev, "candidates", lambda minor: ["python3.12"] if minor == 12 else [])
    monkeypatch.setattr(dev, "answer", lambda python, code: "" if "ensurepip" in code else "True")
    with pytest.raises(SystemExit, match=r"apt install python3\.12-venv"):
        dev.find_interpreter(needs_pip=True)
    assert dev.find_interpreter(needs_pip=False) == "python3.12"


# --- .ci/audit.py: an index without advisories does not look like a clean environment


PROGRAM = SCRIPT.parent / ".ci" / "audit.py"
BAD = {"name": "jinja2", "version": "2.10", "vulns": [{"id": "PYSEC-2019-217", "fix_versions": ["2.10.1"]}]}
CLEAN = {"name": "django", "version": "6.1.3", "vulns": []}
UNKNOWN = {"name": "django", "skip_reason": "Dependency not found on PyPI"}


@pytest.mark.parametrize(("known", "rest", "code", "said"), [
    ([BAD], [CLEAN], 0, "1 packages, 0 with"),
    ([BAD], [CLEAN, BAD], 1, "jinja2 2.10: PYSEC-2019-217 (fixed in 2.10.1)"),
    ([BAD], [CLEAN, UNKNOWN], 1, "does not know django"),
    ([{**BAD, "vulns": []}], [CLEAN], 0, "SKIPPED: audit"),
    ([UNKNOWN], [UNKNOWN], 0, "SKIPPED: audit"),
    ([], [], 0, "SKIPPED: audit"),
])  # fmt: skip
def test_what_the_audit_says(
    known: list[Any], rest: list[Any], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = iter([known, rest])
    main = runpy.run_path(str(PROGRAM))["main"]
    main.__globals__["advisories"] = lambda requirements: next(answers)
    assert main() == code
    assert said in capsys.readouterr().out
