"""The package is built in layers: a package imports only from lower layers, and no module in a circle. And it
keeps its size: files, lines and modules at the root have a budget, as the words of docs/decisions do, and no
module is a crumb.

The imports are read from the source, so imports inside functions are included. Modules that are named by a
string cannot be found in this way: the entry of the implicit backend in ``tasks.routing``, the public names
in ``__init__``, and the public functions that the methods of ``Job`` call.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

PACKAGE = "django_pgqueue"
ROOT = Path(__file__).resolve().parents[2]

#: The layers from bottom (first line) to top: packages, and the modules at the root. A module may import from
#: its own package and from lower layers, but not from the others of its line. What a package may use is in
#: the lines below it.
LAYERS = """
    compat exceptions formatting redaction_rules
    conf encoding
    alerts postgres
    tasks
    operations redaction
    telemetry schedules
    context models
    middleware migrations
    jobs
    backend logs
    monitoring
    explanation
    maintenance
    __init__ checks
    admin apps metrics worker
    shell templatetags views
    management testing
"""

#: What type checkers know from above. Nothing runs upward.
FOR_TYPES = {
    ("jobs.current", "worker.executor.running_job"): "what a worker keeps of a job that runs",
    ("models.current", "jobs.batches"): "the batch of a job",
    ("models.current", "worker.executor.running_job"): "what a worker keeps of a job that runs",
    ("models.changes", "explanation"): "the Reason of job.why()",
    ("tasks.decorator", "jobs.current"): "the JobContext that a task takes",
    ("tasks.decorator", "models.job"): "the model of a payload",
    ("tasks.routing", "backend"): "the backend of this package",
    ("tasks.task", "jobs.results"): "the result of a call",
}

#: The modules that import parts of this package inside functions, and why. The layers apply to them as well.
INSIDE_FUNCTIONS = {
    "__init__": "only an unknown name needs the words of misuse",
    "apps": "the checks and the payloads need the models, which are there when the app is ready",
    "backend": "Django imports it while apps load, if a task is declared then; the models come later",
    "management.commands.runqueueworker": "a supervisor has nothing in memory that runs jobs",
    "worker.__main__": "Django is set up first",
    "management.subcommands.operating": "prometheus_client is optional",
    "views": "prometheus_client is optional",
    "testing.backends": "Django imports it while apps load, like the backend",
    "testing.pytest_plugin": "pytest imports it before Django is set up, and in projects without Django",
    "testing.worker_process": "Django is set up first",
}


class Arrow(NamedTuple):
    """One import: ``source`` needs ``target``."""

    source: str
    target: str
    line: int
    inside_function: bool
    for_types: bool

    def __str__(self) -> str:
        return f"{self.source} (line {self.line}) imports {self.target}"


def modules() -> dict[str, Path]:
    """Return every module by its name within the package. A package is its ``__init__``."""
    found = {}
    for path in sorted((ROOT / PACKAGE).rglob("*.py")):
        parts = path.relative_to(ROOT / PACKAGE).with_suffix("").parts
        if parts[-1] == "__init__" and len(parts) > 1:
            parts = parts[:-1]
        found[".".join(parts)] = path
    return found


@cache
def sources() -> dict[str, str]:
    """Return the text of every module."""
    return {name: path.read_text() for name, path in modules().items()}


@cache
def trees() -> dict[str, ast.Module]:
    """Return every module, parsed."""
    return {name: ast.parse(text) for name, text in sources().items()}


@cache
def nodes() -> dict[str, list[ast.AST]]:
    """Return all parts of every module, because walking through them takes long."""
    return {name: [*ast.walk(tree)] for name, tree in trees().items()}


@cache
def arrows() -> list[Arrow]:
    """Return all imports between modules of the package."""
    known = modules()
    return [
        arrow
        for name, path in known.items()
        for arrow in arrows_of(name, path, trees()[name], set(known))
        if arrow.target != name
    ]


def arrows_of(
    name: str,
    path: Path,
    node: ast.AST,
    known: set[str],
    inside_function: bool = False,
    for_types: bool = False,
) -> Iterator[Arrow]:
    """Yield the imports in a module, or in a part of it."""
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        for target in _targets(path, node, known):
            yield Arrow(name, target, node.lineno, inside_function, for_types)
    is_function = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    guarded = node.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING" else []
    for child in ast.iter_child_nodes(node):
        yield from arrows_of(
            name, path, child, known, inside_function or is_function, for_types or child in guarded
        )


def _targets(path: Path, node: ast.Import | ast.ImportFrom, known: set[str]) -> list[str]:
    """Yield the modules of the package that a statement imports."""
    base = ""
    if isinstance(node, ast.ImportFrom):
        around = path.parents[node.level - 1].relative_to(ROOT).parts if node.level else ()
        base = ".".join([*around, *filter(None, [node.module]), ""])
    targets = []
    for dotted in [base + alias.name for alias in node.names]:
        if dotted.split(".")[0] != PACKAGE:
            continue
        inner = dotted.removeprefix(PACKAGE).removeprefix(".")
        if inner not in known:  # an object in a module
            inner = inner.rpartition(".")[0]
        targets.append(inner or "__init__")
    return targets


def layers() -> dict[str, int]:
    """Return the number of the layer of each entry."""
    return {
        entry: number for number, line in enumerate(LAYERS.strip().splitlines()) for entry in line.split()
    }


def entry_of(module: str) -> str:
    """Return the entry of LAYERS for a module: its package, or itself if it is at the root."""
    entry = module.partition(".")[0]
    if entry not in layers():
        pytest.fail(f"{entry} has no place in LAYERS of {Path(__file__).name}")
    return entry


def test_every_module_has_a_layer_and_every_entry_a_module() -> None:
    assert {entry_of(module) for module in modules()} == set(layers())


def test_nothing_is_imported_in_a_circle() -> None:
    """Imports for type checkers count as well: who reads one module of a circle has to read them all. Those
    from above are left out: a task makes a result, and the result has a job.
    """
    graph: dict[str, set[str]] = {}
    for arrow in arrows():
        if (arrow.source, arrow.target) not in FOR_TYPES:
            graph.setdefault(arrow.source, set()).add(arrow.target)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"a circle: {' <- '.join(error.args[1])}")


def test_no_import_runs_upward() -> None:
    entries, for_types, wrong = layers(), set(), []
    for arrow in arrows():
        source, target = entry_of(arrow.source), entry_of(arrow.target)
        if source != target and entries[target] >= entries[source]:
            if arrow.for_types and (arrow.source, arrow.target) in FOR_TYPES:
                for_types.add((arrow.source, arrow.target))
            else:
                wrong.append(str(arrow))
    assert wrong == []
    assert for_types == set(FOR_TYPES), "these are no longer imported"


def test_imports_inside_functions_have_a_reason() -> None:
    inside = [arrow for arrow in arrows() if arrow.inside_function]
    assert [str(arrow) for arrow in inside if arrow.source not in INSIDE_FUNCTIONS] == []
    assert {arrow.source for arrow in inside} == set(INSIDE_FUNCTIONS), "these import none any more"


# --- Size

#: A commit that needs more raises a number here, with its reason in the same line.
MOST_FILES = 216  # of Python, with migrations
MOST_LINES = 43_860  # with docstrings; 7 for locks on Python 3.14 and the end of a shard
MOST_AT_THE_ROOT = 18  # what projects import or name in their settings, and what everything stands on
MOST_FILES_OF_TESTS = 338  # all of Python below tests/
MOST_LINES_OF_TESTS = 70_240
MOST_WORDS_OF_DECISIONS = 7_500  # half of the 15,000 that they had: the decision, why, and the figures

#: A module of fewer lines belongs in the only module that imports it.
FEWEST_LINES = 80

#: Modules that stay small and apart, and why.
SMALL = {
    "admin.payloads": "a mixin for projects, which the package of the admin names",
    "alerts": "projects import it",
    "testing.backends": "it is imported while apps are loading, so without models",
}

#: Folders in which each module is found by its name, so that none is imported by another.
BY_NAME = ("migrations", "management.commands", "management.subcommands")


def test_files_and_lines_are_within_the_budget() -> None:
    # A budget far above what is there would let the next commits grow unseen.
    assert MOST_FILES - 6 < len(sources()) <= MOST_FILES
    assert MOST_LINES - 600 < sum(len(text.splitlines()) for text in sources().values()) <= MOST_LINES


def test_the_tests_are_within_their_budget() -> None:
    """A test that joins a table of cases, or a file of its topic, costs less than one of its own."""
    found = [len(path.read_text().splitlines()) for path in (ROOT / "tests").rglob("*.py")]
    assert len(found) <= MOST_FILES_OF_TESTS
    assert sum(found) <= MOST_LINES_OF_TESTS


def test_the_root_holds_few_modules() -> None:
    assert len(list((ROOT / PACKAGE).glob("*.py"))) <= MOST_AT_THE_ROOT


def test_the_record_of_decisions_is_short() -> None:
    """Other pages and the code say the rest: a decision links to a page in place of repeating it."""
    pages = (ROOT / "docs" / "decisions").glob("*.md")
    words = sum(len(page.read_text().split()) for page in pages)
    assert MOST_WORDS_OF_DECISIONS - 600 < words <= MOST_WORDS_OF_DECISIONS


def test_no_class_name_stands_twice() -> None:
    """A reader who searches for a class finds one. A class in a class has the name of both."""
    places: defaultdict[str, set[str]] = defaultdict(set)
    for name, tree in trees().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and node.name not in {"Command", "Migration"}:  # Django's names
                places[node.name].add(name)
    assert {name: sorted(where) for name, where in places.items() if len(where) > 1} == {}


def test_no_small_module_has_one_importer() -> None:
    importers: defaultdict[str, set[str]] = defaultdict(set)
    for arrow in arrows():
        importers[arrow.target].add(arrow.source)
    small = {
        name
        for name, path in modules().items()
        if path.name != "__init__.py"
        and not name.startswith(BY_NAME)
        and len(importers[name]) == 1
        and len(sources()[name].splitlines()) < FEWEST_LINES
    }
    assert small == set(SMALL), "join them with their importer, or say why not"
