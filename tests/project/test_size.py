"""The package keeps its size: files, lines and modules at the root have a budget, and no module is a crumb.

A commit that needs more raises a number here, with its reason in the same line.
"""

from __future__ import annotations

import ast
from collections import defaultdict

from .test_layers import PACKAGE, ROOT, arrows, modules

MOST_FILES = 213  # of Python, with migrations; the last one for the stacks of running jobs
MOST_LINES = 40_400  # of Python, with docstrings, comments and blank lines; the last 250 for these stacks
MOST_AT_THE_ROOT = 18  # what projects import or name in their settings, and what everything stands on

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


def lines_of(module: str) -> int:
    """Return the number of lines of a module."""
    return len(modules()[module].read_text().splitlines())


def test_files_and_lines_are_within_the_budget() -> None:
    found = {name: lines_of(name) for name in modules()}
    assert len(found) <= MOST_FILES
    assert sum(found.values()) <= MOST_LINES
    # A budget far above what is there would let the next commits grow unseen.
    assert len(found) > MOST_FILES - 6
    assert sum(found.values()) > MOST_LINES - 600


def test_the_root_holds_few_modules() -> None:
    assert len(list((ROOT / PACKAGE).glob("*.py"))) <= MOST_AT_THE_ROOT


def test_no_class_name_stands_twice() -> None:
    """A reader who searches for a class finds one. A class in a class has the name of both."""
    places: defaultdict[str, set[str]] = defaultdict(set)
    for name, path in modules().items():
        for node in ast.parse(path.read_text()).body:
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
        and lines_of(name) < FEWEST_LINES
    }
    assert small == set(SMALL), "join them with their importer, or say why not"
