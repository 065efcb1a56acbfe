"""dev.py in a separate checkout, with programs that only record how they were called."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

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
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

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
def dev() -> ModuleType:
    spec = importlib.util.spec_from_file_location("dev", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_an_old_python_can_read_it() -> None:
    ast.parse(SCRIPT.read_text(), feature_version=(3, 6))


def test_only_the_standard_library() -> None:
    imported = {
        name.split(".")[0]
        for node in ast.walk(ast.parse(SCRIPT.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (
            [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
        )
    }
    assert imported <= sys.stdlib_module_names


def test_makes_the_environment_and_hands_over(checkout: Checkout) -> None:
    code, output = checkout.run("test", "-k", "one")
    assert code == 0, output
    *installs, handed_over = checkout.calls()
    assert installs[-1].endswith("--editable . --group test")
    assert handed_over == f"-m pytest --rootdir {checkout.root} -n 4 --dist worksteal -k one"


def test_uv_is_used_where_there_is_one(checkout: Checkout, tmp_path: Path) -> None:
    uv = tmp_path / "bin/uv"
    uv.write_text(UV.format(checkout=checkout.root, programs=tmp_path / "bin"))
    uv.chmod(0o755)
    code, output = checkout.run("test")
    assert code == 0, output
    python = f"{checkout.root}/.venv/bin/python"
    assert checkout.calls()[0] == f"uv pip install --quiet --python {python} --editable . --group test"


def test_demo_hands_over_to_the_example_project(checkout: Checkout) -> None:
    code, output = checkout.run("demo", "--serve")
    assert code == 0, output
    assert checkout.calls()[-1] == f"{checkout.root}/example_project/manage.py demo --serve"


def test_the_second_run_installs_nothing_and_says_nothing(checkout: Checkout) -> None:
    checkout.run("test")
    assert checkout.installs() == ["test"]
    assert checkout.run("test") == (0, "")
    assert checkout.installs() == []


def test_another_command_adds_its_packages_and_leaves_the_project_alone(checkout: Checkout) -> None:
    checkout.run("demo")
    checkout.calls()
    checkout.run("test")
    assert [call for call in checkout.calls() if "install" in call] == [
        "-m pip install --quiet --disable-pip-version-check --group test"
    ]


def test_a_changed_project_is_installed_again(checkout: Checkout) -> None:
    checkout.run("demo")
    checkout.run("test")
    checkout.calls()
    (checkout.root / "pyproject.toml").write_text("two")
    checkout.run("test")
    assert checkout.calls()[0].endswith("--editable . --group test")
    checkout.run("demo")
    assert checkout.installs() == ["demo"]


def test_an_environment_without_its_interpreter_is_made_again(checkout: Checkout) -> None:
    checkout.run("test")
    (checkout.root / ".venv/bin/python").unlink()
    checkout.calls()
    assert checkout.run("test")[0] == 0
    assert checkout.installs() == ["test"]


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


def test_a_failed_installation_is_tried_again(checkout: Checkout) -> None:
    failure = checkout.root / "failure"
    failure.write_text("what went wrong")
    code, output = checkout.run("test")
    assert code == 1
    assert "what went wrong" in output
    failure.unlink()
    assert checkout.run("test")[0] == 0
    assert checkout.installs()[-1] == "test"


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        ("NewConnectionError(... Temporary failure in name resolution)", "check the network"),
        ("error: dns error: failed to lookup address", "check the network"),
        ("ERROR: Could not install packages due to an OSError: No space left on device", "disk is full"),
        ("[Errno 30] Read-only file system: '.venv'", "copy it to a folder"),
    ],
)
def test_a_failure_ends_with_one_line_that_says_what_to_do(
    checkout: Checkout, words: str, remedy: str
) -> None:
    (checkout.root / "failure").write_text(words)
    code, output = checkout.run("demo")
    assert code == 1
    assert remedy in output.splitlines()[-1]
    assert "Traceback" not in output


def test_an_environment_of_somebody_else_is_left_alone(checkout: Checkout) -> None:
    (checkout.root / ".venv").mkdir()
    (checkout.root / ".venv/precious").touch()
    code, output = checkout.run("test")
    assert code == 1
    assert "not made by this script" in output
    assert (checkout.root / ".venv/precious").exists()


def test_a_tool_s_note_of_another_environment_gives_way(checkout: Checkout) -> None:
    (checkout.root / ".venv").write_text(".tox/py313")
    assert checkout.run("test")[0] == 0


def test_a_killed_run_s_environment_is_made_again(checkout: Checkout) -> None:
    (checkout.root / ".venv").mkdir()
    (checkout.root / ".venv/dev.json").write_text(json.dumps({"project": None, "groups": []}))
    assert checkout.run("test")[0] == 0


def test_a_checkout_that_cannot_be_written(checkout: Checkout) -> None:
    (checkout.root / ".dev.lock").mkdir()  # permissions do not keep root from writing, but a folder does
    code, output = checkout.run("test")
    assert code == 1
    assert output.startswith("dev.py: ")
    assert output.count("\n") == 1


@pytest.mark.parametrize(("arguments", "code"), [([], 2), (["dance"], 2), (["--help"], 0)])
def test_usage(checkout: Checkout, arguments: list[str], code: int) -> None:
    assert checkout.run(*arguments)[0] == code
    assert not (checkout.root / ".venv").exists()


def test_a_shim_that_answers_with_an_error_is_passed_over(checkout: Checkout, tmp_path: Path) -> None:
    shim = tmp_path / "bin/python3.14"
    (tmp_path / "bin/python3.13").write_text(shim.read_text())
    (tmp_path / "bin/python3.13").chmod(0o755)
    shim.write_text("#!/bin/sh\necho 'python3.14: command not found' >&2\nexit 127\n")
    assert "bin/python3.13" in checkout.run("test")[1].splitlines()[0]


def test_interpreters_in_pyenv_s_folders_are_found(checkout: Checkout, tmp_path: Path) -> None:
    for version in ("3.14.2", "3.14.10"):
        folder = tmp_path / "none/versions" / version / "bin"
        folder.mkdir(parents=True)
        (folder / "python3.14").write_text((tmp_path / "bin/python3.14").read_text())
        (folder / "python3.14").chmod(0o755)
    (tmp_path / "bin/python3.14").unlink()
    assert "3.14.10/bin/python3.14" in checkout.run("test")[1].splitlines()[0]


def test_python_too_old(dev: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dev, "candidates", lambda minor: [])
    with pytest.raises(SystemExit, match=r"Python 3.11 or newer is needed.*pyenv install"):
        dev.find_interpreter(needs_pip=True)


def test_no_venv_module(dev: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dev, "candidates", lambda minor: ["python3.12"] if minor == 12 else [])
    monkeypatch.setattr(dev, "answer", lambda python, code: "" if "ensurepip" in code else "True")
    with pytest.raises(SystemExit, match=r"apt install python3\.12-venv"):
        dev.find_interpreter(needs_pip=True)
    assert dev.find_interpreter(needs_pip=False) == "python3.12"
