"""Nothing is imported, unpickled or evaluated because a row names it, except a task of the project.

The calls are read from the source. For each place, there is a reason why the name does not come from a row,
or what guards it.
"""

from __future__ import annotations

import ast
from collections import defaultdict

from .test_layers import modules

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
    "testing": "the public names of the package",
}


def test_every_dynamic_import_is_known() -> None:
    found = defaultdict(set)
    for module, path in modules().items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                name = ast.unparse(node.func)
                if name.rpartition(".")[2] in CALLS and name not in HARMLESS:
                    found[module].add(name)
    assert dict(found).keys() == PLACES.keys(), found


def test_nothing_is_pickled() -> None:
    """Arguments and results are JSON. What would unpickle them is not even imported."""
    wrong = [
        module
        for module, path in modules().items()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, (ast.Import, ast.ImportFrom))
        and {"pickle", "marshal", "shelve", "dill"}
        & {getattr(node, "module", None), *(name.name for name in node.names)}
    ]
    assert wrong == []
