"""The pages: their pictures are there, and their tables say what the code says."""

from __future__ import annotations

import argparse
import ast
import inspect
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import timedelta
from functools import cache
from importlib import import_module
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import pytest
from django.core.management import load_command_class
from django.utils.module_loading import import_string

import django_pgqueue
from django_pgqueue import conf, encoding, testing
from django_pgqueue.admin.bulk.actions import MOST_FINISHED
from django_pgqueue.admin.bulk.confirm import MOST_AT_ONCE
from django_pgqueue.checks import database, payloads
from django_pgqueue.explanation.words import CODES, MOST_COUNTED
from django_pgqueue.jobs.claim import BATCH
from django_pgqueue.jobs.enqueue import CHUNK, CHUNK_CHARACTERS
from django_pgqueue.jobs.steps import MOST_STEPS
from django_pgqueue.maintenance.rounds import RUNS_KEPT
from django_pgqueue.management._parser import found
from django_pgqueue.models import Job, JobBatch, Pause, QueueStatus, Schedule, Step
from django_pgqueue.models.job import MOST_SEARCHED
from django_pgqueue.redaction import DEFAULT_NAMES
from django_pgqueue.schedules import cron
from django_pgqueue.schedules.declare import MOST_CAUGHT_UP
from django_pgqueue.tasks import keys
from django_pgqueue.tasks.links import MOST_PARENTS
from django_pgqueue.tasks.progress import NOTE_LIMIT
from django_pgqueue.testing import factories, pytest_plugin
from django_pgqueue.testing.calls import _ALLOWED
from django_pgqueue.worker.producer import demand
from tests.browser.pictures import FOLDER, PICTURES
from tests.chaos.scenarios import SCENARIOS
from tests.support.databases import sql_files
from tests.support.examples import ROOT
from tests.support.jobs import fetch

from .shop import DOCS

PROJECT = (DOCS.parent / "pyproject.toml").read_text()


def test_every_picture_of_the_admin_is_on_a_page_in_light_and_dark() -> None:
    pages = "".join(path.read_text() for path in (DOCS / "howto").glob("*.md"))
    names = {f"{name}{look}.webp" for name in PICTURES for look in ("", "-dark")}
    assert {path.name for path in FOLDER.iterdir()} == names
    assert {*re.findall(r"_static/console/([\w.-]+)", pages)} == names


#: The functions whose names begin with no underscore: users call them.
SQL_NAMES = sorted(
    name
    for path in sql_files()
    for name in re.findall(r"^CREATE (?:FUNCTION|PROCEDURE) (pgqueue_\w+)", path.read_text(), re.MULTILINE)
)


def reference(name: str) -> str:
    return (DOCS / "reference" / f"{name}.md").read_text()


def rows(text: str) -> list[list[str]]:
    """The rows of the tables of a page, without their heads; cells without the marks of code."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    rules = [place for place, line in enumerate(lines) if set(line) <= set("|- ")]
    heads = {*rules, *(place - 1 for place in rules)}
    bodies = [line for place, line in enumerate(lines) if place not in heads]
    return [[cell.strip().replace("`", "") for cell in line.strip("|").split(" | ")] for line in bodies]


def test_the_page_of_settings_lists_each_with_its_default() -> None:
    def shown(value: object) -> str:
        return f"timedelta(days={value.days})" if isinstance(value, timedelta) else repr(value)

    found = dict(re.findall(r"^## ([A-Z_]+)\n\nDefault: `([^`]+)`", reference("settings"), re.MULTILINE))
    defaults = conf.Settings()
    expected = {name.upper(): shown(getattr(defaults, name)) for name in conf.Settings.__dataclass_fields__}
    assert found == expected


#: Django's own options, which every command has.
COMMON = {"--help", "--version", "--verbosity", "--settings", "--pythonpath", "--traceback", "--no-color",
          "--force-color", "--skip-checks"}  # fmt: skip


def actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """The arguments of a parser and of its subcommands."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield from actions(inner)


@pytest.mark.parametrize("name", ["runqueueworker", "pgqueue"])
def test_the_page_of_commands_lists_each_option_with_its_default(name: str) -> None:
    parser = load_command_class("django_pgqueue", name).create_parser("manage.py", name)
    options = {action.option_strings[-1]: action for action in actions(parser) if action.option_strings}
    section = reference("commands").split(f"\n## `{name}`\n")[1].split("\n## ")[0]
    listed = {row[0].split()[0]: row[1] for row in rows(section) if row[0].startswith("--")}
    assert set(listed) == set(options) - COMMON
    for option, default in listed.items():
        if isinstance(options[option].default, int) and not isinstance(options[option].default, bool):
            assert default == str(options[option].default)


def test_the_page_of_checks_lists_each_id() -> None:
    package = Path(django_pgqueue.__file__).parent
    in_code = {
        f"pgqueue.{found}"
        for path in package.glob("checks/*.py")
        for found in re.findall(r"\b[EWI]\d{3}\b", path.read_text())
    }
    listed = re.findall(r"^## (pgqueue\.[EWI]\d{3})", reference("checks"), re.MULTILINE)
    assert sorted(listed) == sorted(in_code)
    for section in re.split(r"^## ", reference("checks"), flags=re.MULTILINE)[1:]:
        assert "Cause:" in section, section[:20]
        assert "Remedy:" in section, section[:20]


def test_the_page_of_checks_names_those_that_query_the_database() -> None:
    functions = (
        database.database_problems, database.check_database, payloads.check_payload_triggers,
        payloads.check_declared_tasks,
    )  # fmt: skip
    in_code = {found for each in functions for found in re.findall(r"\b[EW]\d{3}\b", each.__doc__ or "")}
    pattern = r"(?s)`SILENCED_SYSTEM_CHECKS`\. (.*?) query the database"
    (listed,) = re.findall(pattern, reference("checks"))
    named = set()
    for letter, first, last in re.findall(r"([EW])(\d{3})(?:\s+to\s+[EW](\d{3}))?", listed):
        named |= {f"{letter}{number:03}" for number in range(int(first), int(last or first) + 1)}
    assert named == in_code


#: Those whose comments in the database do not say that they are internal.
COLUMNS = """
    SELECT attname FROM pg_attribute
    WHERE attrelid = 'pgqueue_job'::regclass AND attnum > 0 AND NOT attisdropped
        AND NOT starts_with(coalesce(col_description(attrelid, attnum), ''), 'Internal.')
"""
TABLES = """
    SELECT relname FROM pg_class
    WHERE relname LIKE 'pgqueue%' AND relkind IN ('r', 'p')
        AND (relname LIKE 'pgqueue_job%' OR NOT starts_with(obj_description(oid, 'pg_class'), 'Internal.'))
"""


def asked(query: str) -> set[str]:
    return {name for (name,) in fetch(query)}


@pytest.mark.django_db
def test_the_page_of_job_lists_each_column_that_people_read() -> None:
    names = {field.column: field.name for field in Job._meta.concrete_fields}
    listed = [row[0] for row in rows(reference("job").split("## Statuses")[0]) if len(row) == 3]
    assert sorted(listed) == sorted(names[column] for column in asked(COLUMNS))


@pytest.mark.django_db
def test_the_page_of_tables_lists_those_that_people_read() -> None:
    listed = {row[0] for row in rows(reference("tables"))}
    shelves = {f"pgqueue_job_past_{shelf}" for shelf in range(1, 9)}
    assert listed | shelves == asked(TABLES)


#: The numbers of the page of limits, as the code has them.
NUMBERS: dict[str, Any] = {
    "Arguments of a job, as JSON": conf.Settings().max_json_bytes,
    "Result of a job, as JSON": conf.Settings().max_json_bytes,
    "Context of a job, as JSON": encoding.MAX_CONTEXT,
    "Nesting of JSON": encoding._MAX_DEPTH,
    "Name of a queue": Job._meta.get_field("queue_name").max_length,
    "Path of a task": Job._meta.get_field("task_path").max_length,
    "Unique key, limit key, group": keys.KEY_LENGTH,
    "Name of a batch": JobBatch._meta.get_field("name").max_length,
    "Name of a schedule": Schedule._meta.get_field("name").max_length,
    "Name of a step": Step._meta.get_field("name").max_length,
    "Steps, sleeps and events of a job": MOST_STEPS,
    "Jobs that a job waits for (after)": MOST_PARENTS,
    "Indexed arguments of a task (search)": keys.MOST_SEARCH,
    "Indexed text of an argument, with its name": MOST_SEARCHED,
    "Note of the progress": NOTE_LIMIT,
    "Reason of a pause": Pause._meta.get_field("reason").max_length,
    "Interval of a schedule": cron.LONGEST.days,
    "Missed runs of a schedule that are caught up": MOST_CAUGHT_UP,
    "Jobs in one statement of enqueue_many": (CHUNK, CHUNK_CHARACTERS),
    "Attempts of a job": conf.Settings().max_attempts,
    "Pause before a retry": conf.Settings().backoff_ceiling,
    "Crashes of a job": conf.Settings().crash_limit,
    "Time for which a job waits for a worker that knows its task": conf.Settings().unknown_task_timeout,
    "Jobs in one claim": BATCH,
    "Jobs that a process holds": (demand.MOST, demand.HELD_CHARACTERS),
    "Grace period of a worker": conf.Settings().grace,
    "Age of the last heartbeat of a live worker": conf.Settings().lease,
    "Done and cancelled jobs": conf.Settings().retention.days,
    "Failed jobs": conf.Settings().failed_retention.days,
    "Statistics by hour and day, groups of failures": conf.Settings().statistics_retention.days,
    "Runs of schedules": RUNS_KEPT.days,
    "Errors of a job": conf.Settings().keep_errors,
    "One error with its traceback": conf.Settings().max_error_bytes,
    "Log of an attempt, lines": conf.Settings().log_lines,
    "Log of an attempt, bytes": conf.Settings().log_bytes,
    "Exact counts in why": MOST_COUNTED,
    "Finished jobs that an action of the admin on all matching jobs considers": MOST_FINISHED,
    "Jobs of one action of the admin that is noted in the history of each": MOST_AT_ONCE,
}
#: Rows without a number, or with one that a test of its own holds.
WITHOUT = {"Priority", "run_after", "Jobs in a batch, in a queue, in the table", "Time of an attempt",
           "Jobs that run at once"}  # fmt: skip


def test_the_page_of_limits_has_the_numbers_of_the_code() -> None:
    listed = {row[0]: row[1] for row in rows(reference("limits"))}
    assert set(listed) == {*NUMBERS, *WITHOUT}
    for name, numbers in NUMBERS.items():
        for number in numbers if isinstance(numbers, tuple) else (numbers,):
            assert re.search(rf"(?<![\d,]){number:,.0f}(?![\d,]\d)", listed[name]), name


@pytest.mark.django_db
def test_the_page_of_job_has_the_statuses_of_the_table() -> None:
    word = {True: "yes", False: "no"}
    expected = {(s.status, word[s.is_claimable], word[s.is_terminal]) for s in QueueStatus.objects.all()}
    section = reference("job").split("## Statuses")[1].split("## Properties")[0]
    assert {tuple(row[:3]) for row in rows(section)} == expected


@pytest.mark.django_db
def test_the_page_of_sql_shows_the_signatures() -> None:
    query = "SELECT proname, pg_get_function_arguments(oid) FROM pg_proc WHERE proname = ANY (%s)"
    arguments = {name: re.sub(r"'[^']*'", "''", text) for name, text in fetch(query, SQL_NAMES)}
    parameter = r"(?:^|, )(?:IN |OUT )?(\w+) "
    sections = re.split(r"^## ", reference("sql"), flags=re.MULTILINE)
    listed = {}
    for name in arguments:
        (text,) = [part for part in sections if part.startswith(f"`{name}`")]
        listed[name] = [row[0] for row in rows(text) if re.fullmatch(r"\w+", row[0]) and len(row) == 3]
    assert listed == {name: re.findall(parameter, text) for name, text in arguments.items()}
    assert len(listed) == len(SQL_NAMES)


#: What public modules define for the rest of the package: the other names are public and on the page. A new
#: name is in one of the two, or begins with an underscore.
INTERNAL = {
    "admin": """BatchAdmin JobStatAdmin LimitAdmin PauseAdmin QueueAdmin ScheduleAdmin WorkerAdmin""",
    "alerts": "Kind",
    "backend": "BadParameters",
    "context": "capture holding restored user_from variable",
    "exceptions": "JobControl duration moment",
    "metrics": "MOST PATIENCE logger registry",
    "models": """
        BatchCounts CurrentJob DeclaredTask Edge FailureNote JobProgress JobStack LiveJob QueueStatus
        RaisedAlert RateState Ring Tally UniqueWindow
    """,
    "operations": "RunSQLFile SQL_FOLDER after_migrate lost_functions read_sql",
    "redaction": """
        FAILED Names beginning logger names_of_call redact redact_call redact_text restore
    """,
    "views": "PERMISSION may_monitor",
}
#: The same for classes whose members the pages list.
INTERNAL_MEMBERS = {
    "Task": "policy get_backend with_values",
    "Schedule": "clean is_active save timing",
    "Batch": "as_link of",
    "Parents": "read",
    "Job": "as_link",
    "CurrentJob": "as_link from_db",
}


def defined_in(module: ModuleType) -> set[str]:
    """The names that a module defines, or has in its ``__all__``."""
    names = set(getattr(module, "__all__", ()))
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return {name for name in names if not name.startswith("_")}


def methods_of(cls: type) -> set[str]:
    """The public methods and properties of a class and of its bases in the package."""
    kinds = (FunctionType, property, classmethod, staticmethod)
    return {
        name
        for base in cls.__mro__
        if base.__module__.startswith("django_pgqueue.")
        for name, value in vars(base).items()
        if isinstance(value, kinds) and not name.startswith("_")
    }


def test_the_page_of_sql_lists_our_codes() -> None:
    code = "".join(path.read_text() for path in sql_files())
    raised = set(re.findall(r"ERRCODE = '(23Q\d\d)'", code))
    assert set(re.findall(r"`(23Q\d\d)`", reference("sql"))) == raised


def test_the_page_of_functions_has_every_public_name_and_no_other() -> None:
    page = reference("functions")
    paths = re.findall(r"^\.\. (?:auto|py:)\w+:: django_pgqueue\.([\w.]+)", page, re.MULTILINE)
    assert {path for path in paths if "." not in path} == set(django_pgqueue.__all__)
    assert sorted(dir(django_pgqueue)) == sorted(django_pgqueue.__all__)
    for path in paths:
        import_string(f"django_pgqueue.{path}")


def test_the_page_of_functions_has_every_name_of_the_public_modules() -> None:
    listed = {row[0]: row[1] for row in rows(reference("functions").split("\n## Other modules\n")[1])}
    del listed["django_pgqueue.testing"]  # see below
    for name, names in listed.items():
        internal = set(INTERNAL.get(name.rpartition(".")[2], "").split())
        defined = defined_in(import_module(name))
        assert internal <= defined, name
        assert set(names.split(", ")) == defined - internal, name
    assert set(INTERNAL) <= {name.rpartition(".")[2] for name in listed}


def test_the_pages_have_every_method_of_the_public_classes() -> None:
    page = reference("functions")
    directive = r"^\.\. autoclass:: (django_pgqueue\.[\w.]+).*\n   :members: (.*)"
    found = {import_string(path): set(names.split(", ")) for path, names in re.findall(directive, page, re.M)}
    words = set(re.findall(r"\w+", " ".join(re.findall(r"`[^`\n]+`", reference("job")))))
    for cls, members in {**found, Job: words, django_pgqueue.CurrentJob: words}.items():
        missing = methods_of(cls) - members - set(INTERNAL_MEMBERS.get(cls.__name__, "").split())
        # A page may say once that there are async forms.
        assert {name for name in missing if not (name[0] == "a" and name[1:] in members)} == set(), cls
        if cls in found:
            assert {name for name in members if not hasattr(cls, name)} <= set(cls.__annotations__), cls


def test_the_page_of_the_test_kit_has_every_public_name_and_fixture() -> None:
    page = reference("testing")
    directives = re.findall(r"^\.\. auto\w+:: django_pgqueue\.testing\.([\w.]+)", page, re.MULTILINE)
    made = {f"factories.{name}" for name in factories.__all__ if name.endswith("Factory")}
    assert set(directives) == {*testing.__all__, *made}
    fixtures = [name for name, value in vars(pytest_plugin).items() if hasattr(value, "_fixture_function")]
    assert {row[0] for row in rows(page)} == {name for name in fixtures if not name.startswith("_")}
    assert set(re.findall(r"`(\w+)`", page)) >= set(_ALLOWED)


def test_the_page_of_functions_shows_every_option_of_a_task() -> None:
    (shown,) = re.findall(r"(?m)^\.\. py:function:: django_pgqueue\.task(\(.*\))", reference("functions"))
    documented: dict[str, Any] = {}
    exec(f"def task{shown}: ...", documented)  # noqa: S102

    def options(function: Any) -> dict[str, Any]:
        return {name: parameter.default for name, parameter in inspect.signature(function).parameters.items()}

    expected = {**options(django_pgqueue.task), "backend": None}  # the name of the implicit one is ours
    assert options(documented["task"]) == expected


@pytest.mark.parametrize("function", [django_pgqueue.task, django_pgqueue.schedule])
def test_the_tables_of_options_are_complete(function: Any) -> None:
    names = {*inspect.signature(function).parameters} - {"function"}
    tables = re.split(r"\n\n", reference("functions"))
    listed = [re.findall(r"\w+", ",".join(row[0] for row in rows(table))) for table in tables]
    assert names in [{*each} for each in listed if len(each) == len(names)]


BLOCKS = re.findall(
    r"{% block (pgqueue_\w+) %}",
    (DOCS.parent / "django_pgqueue/templates/admin/django_pgqueue/job/change_form.html").read_text(),
)


@pytest.mark.parametrize(("page", "row", "names"), [
    ("howto/admin-customize", r"^\| (`pgqueue_\w+`)", BLOCKS),
    ("howto/troubleshooting", r"^\| (`\w+`(?:, `\w+`)*) \|", {*CODES} - {"blocked"}),
    ("howto/redaction", r"^The default names are ([^.]+)\.", DEFAULT_NAMES),
    ("reference/commands", r"^### (`pgqueue .*)$", found()),
])  # fmt: skip
def test_the_page_lists_all_names(page: str, row: str, names: Iterable[str]) -> None:
    listed = " ".join(re.findall(row, (DOCS / f"{page}.md").read_text(), re.MULTILINE))
    assert sorted(re.findall(r"`(?:pgqueue )?([\w-]+)`", listed)) == sorted(names) != []


def test_the_glossary_is_in_alphabetical_order() -> None:
    words = [row[0] for row in rows(reference("glossary"))]
    assert words == sorted(set(words))


@pytest.mark.parametrize(("name", "versions"), [
    ("Python", re.findall(r"Python :: (3\.\d+)", PROJECT)),
    ("Django", re.findall(r"Django :: ([\d.]+)", PROJECT)),
    ("PostgreSQL", [str(number) for number in range(14, 19)]),
    ("psycopg", re.findall(r"psycopg>=([\d.]+)", PROJECT)),
])  # fmt: skip
def test_the_page_of_versions_lists_the_supported_ones(name: str, versions: list[str]) -> None:
    listed = [row[0] for row in rows(reference("stability").split("\n## Supported versions\n")[1])]
    assert re.findall(rf"\b{name} ([\d.]+)", "\n".join(listed)) == versions


def test_the_page_of_reliability_says_what_to_expect_of_each_scenario() -> None:
    page = (DOCS / "explanation" / "reliability.md").read_text()
    section = page.split("\n### The scenarios\n")[1].split("\n### ")[0]
    assert [row[0] for row in rows(section)] == list(SCENARIOS)


# --- Links between the pages lead somewhere, on a forge as well as on the site


FILES = sorted([*ROOT.glob("*.md"), *(path for path in DOCS.rglob("*.md") if "_build" not in path.parts)])
#: Blocks of code have no headings and no links.
FENCE = re.compile(r"^ *(`{3,}).*?^ *\1`*$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<!`)\]\(([^)\s]+)\)|\b(?:src|srcset|href)=\"([^\"]+)\"")


def prose(path: Path) -> str:
    return FENCE.sub("", path.read_text())


@cache
def anchors(path: Path) -> set[str]:
    """The anchors that GitHub gives to the headings of a page, and MyST with `myst_heading_anchors`."""
    found: Counter[str] = Counter()
    names = set()
    for heading in re.findall(r"^#{1,6} +(.+?)(?: +#+)?$", prose(path), re.MULTILINE):
        text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
        text = re.sub(r"(?<![\w`])([*_]+)(\S.*?)\1(?!\w)", r"\2", text)
        slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        names.add(f"{slug}-{found[slug]}" if found[slug] else slug)
        found[slug] += 1
    return names


def problem(page: Path, link: str) -> bool:
    """Whether the link of a page leads nowhere."""
    name, _, anchor = link.partition("#")
    target = (page.parent / name).resolve() if name else page
    return not target.exists() or bool(anchor and anchor not in anchors(target))


def test_relative_links_and_anchors_exist() -> None:
    links = [(page, link) for page in FILES for pair in LINK.findall(prose(page)) if (link := "".join(pair))]
    relative = [(page, link) for page, link in links if not re.match(r"[a-z]+:", link)]
    assert len(relative) > 300
    assert [(str(page.relative_to(ROOT)), link) for page, link in relative if problem(page, link)] == []


def test_no_page_needs_an_anchor_that_only_the_site_has() -> None:
    label = re.compile(r"^\([\w-]+\)=$|^<a (?:id|name)=", re.MULTILINE)
    assert [page for page in FILES if label.search(prose(page))] == []


def test_pages_use_few_directives_that_a_forge_does_not_know() -> None:
    known = {"toctree", "include"}  # lists of pages, the changelog
    for page in FILES:
        assert {*re.findall(r"(?m)^ *(?:`{3,}|:{3,})\{([\w-]+)\}", page.read_text())} <= known, page
