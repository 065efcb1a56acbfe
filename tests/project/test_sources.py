"""What no module of the package does: import what a row names, unpickle, and read the clock of the machine.

Nothing is imported, unpickled or evaluated because a row names it, except a task of the project. Nothing
depends on the clock of the machine: times of the queue are those of the server (``clock``), and durations are
measured with the monotonic clock. The scenario ``wrong clocks`` of the fault suite runs workers and web
processes whose clocks are wrong. For each place that may, there is a reason.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from .test_layers import PACKAGE, ROOT, modules, nodes

#: What turns a name or bytes into code.
CALLS = {
    "import_string", "import_module", "__import__", "eval", "exec", "compile", "load_module", "exec_module",
    "run_path", "run_module", "resolve_name", "get_model", "loads",
}  # fmt: skip
#: They make only values.
HARMLESS = {"compiler.compile", "json.loads", "re.compile", "signing.loads"}

PLACES = {
    "__init__": "the public names of the package",
    "conf": "settings that name an object; of CONTEXT, the name in a row is looked up if the setting has it",
    "checks.tasks": "the modules that declare tasks",
    "checks.backends": "the checks of Django's backend",
    "compat": "the modules of the package django-tasks",
    "management._parser": "the modules of the package",
    "models.changes": "the public names of the package",
    "operations": "a migration",
    "tasks.paths": "PGQUEUE['TASK_MODULES'] of apps; of a row, if is_task_module(): only a task is returned",
    "tasks.routing": "TASKS",
    "maintenance.schedules": "the modules of installed apps that have declared schedules",
    "admin.job_page.formatter": "of a row: a model that is installed already, and nothing is imported",
    "worker.spawn": "PGQUEUE['SETUP'], which the parent process passes on",
}


def test_every_dynamic_import_is_known() -> None:
    found = defaultdict(set)
    for module, parts in nodes().items():
        for node in parts:
            if isinstance(node, ast.Call):
                name = ast.unparse(node.func)
                if name.rpartition(".")[2] in CALLS and name not in HARMLESS:
                    found[module].add(name)
    assert dict(found).keys() == PLACES.keys(), found


def test_nothing_is_pickled() -> None:
    """Arguments and results are JSON. What would unpickle them is not even imported."""
    wrong = [
        module
        for module, parts in nodes().items()
        for node in parts
        if isinstance(node, (ast.Import, ast.ImportFrom))
        and {"pickle", "marshal", "shelve", "dill"}
        & {getattr(node, "module", None), *(name.name for name in node.names)}
    ]
    assert wrong == []


# --- The clock

#: How often a module may read the clock of the machine, or import what reads it, and why it does.
ALLOWED = {
    "tasks/task.py": (1, "a delay for a backend of others, which takes only a time"),
    "telemetry/log.py": (1, "a line of the log, beside the times that logging itself writes"),
    "management/_reload.py": (1, "compared with the times of files on the same machine"),
    "management/subcommands/top.py": (1, "shown if the server cannot be reached"),
    "schedules/cron.py": (2, "any time will do to see whether an expression has runs"),
    "explanation/schedules.py": (1, "any time will do to put an expression into words"),
    "checks/doctor.py": (1, "compared with the clock of the server"),
    "postgres/clock.py": (1, "the server has not told the time yet"),
    "tasks/options.py": (1, "whether a time is within 100 years"),
    "testing/calls.py": (1, "a job without a database"),
    "testing/factories.py": (3, "invented jobs"),
    "testing/modes.py": (2, "jobs without a database"),
}

_READS = re.compile(
    r"""
    (?<![\w.])(?:\w+\.)?(?:datetime|date|timezone|django_timezone|time)\.(?:
        (?:now|today|utcnow|time_ns)\b | (?<!datetime\.)time\b
        | (?:localtime|localdate|gmtime|ctime)\b(?!\([^)]) | strftime\b(?!\([^()]+,)  # only without a time
    )
    | ^from\ (?:time|django\.utils\.timezone)\ import\ (?:\(|.*\b(?:now|(?:local)?time|localdate|strftime)\b)
    | ^import\ (?:time|datetime)\ as
    """,
    re.MULTILINE | re.VERBOSE,
)


def test_the_clock_of_the_machine_is_read_only_where_it_may_be() -> None:
    found = {
        str(path.relative_to(ROOT / PACKAGE)): number
        for path in modules().values()
        if (number := len(_READS.findall(path.read_text())))
    }
    assert found == {path: number for path, (number, _why) in ALLOWED.items()}


def test_pages_do_not_read_the_clock_of_the_browser_or_of_the_web_process() -> None:
    package = ROOT / PACKAGE
    texts = [*package.rglob("*.html"), *(package / "static" / "django_pgqueue").glob("*.js")]
    pattern = re.compile(r"Date\.now|new Date\(\)|\{% now |\|\s*(timesince|timeuntil|naturaltime)\b(?!:)")
    assert [path.name for path in texts if pattern.search(path.read_text())] == []


# --- Texts are plain American English


WORDS = tomllib.loads(Path(__file__).with_name("words.toml").read_text())["word"]
KINDS = {".css", ".html", ".js", ".py", ".sql", ".txt"}
#: A space between two words of a pattern also matches the end of a line, and the beginning of a comment.
GAP = r"\s+(?:(?:#:?|--|//|\*)\s+)?"


@cache
def texts(part: str) -> dict[Path, str]:
    """Return the files of the pages or of the package."""
    if part == "pages":
        found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    else:
        files = (path for path in (ROOT / PACKAGE).rglob("*") if path.suffix in KINDS)
        found = [path for path in files if not {"dagre", "uplot"} & set(path.parts)]
    return {path: path.read_text() for path in sorted(found)}


@pytest.mark.parametrize("part", ["pages", "package"])
@pytest.mark.parametrize("word", WORDS, ids=lambda word: word["instead"].split(":")[0].split(",")[0])
def test_texts_avoid(word: dict[str, str | int], part: str) -> None:
    spaced = re.sub(r"(?<=[\w)]) (?=[\w(])", lambda space: GAP, str(word["pattern"]))
    pattern = re.compile(spaced, re.MULTILINE)
    found = [
        f"{path.relative_to(ROOT)}:{text.count(chr(10), 0, match.start()) + 1}: {' '.join(match[0].split())}"
        for path, text in texts(part).items()
        for match in pattern.finditer(text)
    ]
    assert len(found) <= int(word.get(part, 0)), f"Write {word['instead']}:\n" + "\n".join(found)


# --- The types of the public interface, under ``mypy --strict`` and pyright


CASES = ROOT / "tests" / "typing"
GOOD, BAD = CASES / "good_cases.py", CASES / "bad_cases.py"

Complaints = dict[int, list[str]]


def mypy(path: Path) -> Complaints:
    """Return mypy's messages for each line of a file."""
    output = run("mypy", "--strict", "--no-error-summary", "--hide-error-context", str(path))
    found: Complaints = {}
    for line in output.splitlines():
        match = re.fullmatch(rf".*{path.name}:(\d+): error: (.*)", line)
        if match:
            found.setdefault(int(match[1]), []).append(match[2])
        else:
            assert ": error:" not in line or "/typing/" not in line, line
    return found


def pyright(path: Path) -> Complaints:
    """Return pyright's messages for each line of a file."""
    report = json.loads(run("pyright", "--outputjson", "--pythonpath", sys.executable, str(path)))
    assert report["summary"]["filesAnalyzed"] == 1
    found: Complaints = {}
    for each in report["generalDiagnostics"]:
        if each["severity"] == "error":
            found.setdefault(each["range"]["start"]["line"] + 1, []).append(each["message"])
    return found


def run(tool: str, *options: str) -> str:
    """Return the output of a type checker. Fail if it, or Django's types for it, are not installed."""
    missing = [name for name in (tool, "mypy_django_plugin") if importlib.util.find_spec(name) is None]
    assert not missing, f"type checks need {', '.join(missing)}"
    command = [sys.executable, "-m", tool, *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout


@pytest.mark.skipif("CI_TYPES" not in os.environ, reason="tox run -e types checks the types")
@pytest.mark.parametrize("tool", [mypy, pyright])
def test_good_cases_are_accepted(tool: Callable[[Path], Complaints]) -> None:
    assert tool(GOOD) == {}


@pytest.mark.skipif("CI_TYPES" not in os.environ, reason="tox run -e types checks the types")
@pytest.mark.parametrize("tool", [mypy, pyright])
def test_bad_cases_are_refused_line_by_line(tool: Callable[[Path], Complaints]) -> None:
    lines = enumerate(BAD.read_text().splitlines(), start=1)
    expected = {number: line.strip() for number, line in lines if line.endswith("# refused")}
    found = tool(BAD)
    assert [line for number, line in expected.items() if number not in found] == []
    assert {number: messages for number, messages in found.items() if number not in expected} == {}
    assert len(expected) > 60
