"""The rooms of the worker: who imports whom, read from the source, and what a supervisor has in memory."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import django_pgqueue

PACKAGE = Path(django_pgqueue.__file__).parent
WORKER = "django_pgqueue.worker"

# Each room of worker/ with the floor on which it stands: it imports only what stands lower.
FLOORS = {
    "logs": 0, "options": 0, "processes": 0, "reconnect": 0, "waker": 0,
    "executor": 1, "registry": 1, "supervisor": 1,
    "isolated": 2, "producer": 2,
    "process": 3,
    "__main__": 4,
}  # fmt: skip


def modules() -> dict[str, Path]:
    """The modules of the package by name."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def imports(name: str) -> Iterator[str]:
    """The modules of the package that a module imports, those for the type checker among them."""
    path = MODULES[name]
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            base = package.split(".")[: 1 - node.level or None] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                full = f"{source}.{alias.name}"
                yield full if full in MODULES else source
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in MODULES)


def room(module: str) -> str:
    return module.removeprefix(f"{WORKER}.").partition(".")[0]


WORKERS = [name for name in MODULES if name.startswith(f"{WORKER}.")]


def test_no_room_imports_one_on_its_own_floor_or_above() -> None:
    assert {room(name) for name in WORKERS} == set(FLOORS)
    wrong = [
        (name, found)
        for name in WORKERS
        for found in imports(name)
        if found in WORKERS and room(found) != room(name) and FLOORS[room(found)] >= FLOORS[room(name)]
    ]
    assert wrong == []


def test_no_modules_of_the_worker_import_each_other_in_a_circle() -> None:
    graph = {name: {found for found in imports(name) if found in WORKERS} for name in WORKERS}
    TopologicalSorter(graph).prepare()


def test_only_the_command_imports_the_worker() -> None:
    above = {
        name
        for name in MODULES
        if not name.startswith(WORKER) and any(found.startswith(WORKER) for found in imports(name))
    }
    assert above == {"django_pgqueue.management.commands.runqueueworker"}


def test_no_module_of_the_worker_is_longer_than_300_lines() -> None:
    long = {name for name in WORKERS if len(MODULES[name].read_text().splitlines()) > 300}
    assert long == set()


def test_a_supervisor_has_nothing_in_memory_that_runs_jobs() -> None:
    program = (
        "import django, sys; django.setup()\n"
        "import django_pgqueue.management.commands.runqueueworker\n"
        "print(*[name for name in sys.modules if name.startswith('django_pgqueue.worker.')])"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    rooms = {room(name) for name in ended.stdout.split()}
    assert "supervisor" in rooms
    assert rooms.isdisjoint({"executor", "producer", "isolated", "process", "registry"})
