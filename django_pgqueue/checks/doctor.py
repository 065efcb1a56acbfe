"""``manage.py pgqueue doctor``: everything that is known to go wrong with a queue, examined at once.

The parts that others have are asked: the system checks of the database, the health of the queues, and the
parts of the server's state. The doctor adds probes in a session of its own, such as a notification that must
arrive, and a commit whose time is taken. It changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from secrets import token_hex
from statistics import median
from time import monotonic
from types import SimpleNamespace
from typing import Any, NamedTuple

import psycopg
from django.core.checks import WARNING
from django.db import Error, connections
from django.template.defaultfilters import filesizeformat
from django.utils.translation import gettext as _, gettext_lazy
from psycopg.errors import InsufficientPrivilege

from .. import conf
from ..formatting import age, first_few, number
from ..maintenance.reindex import bloated_indexes
from ..models import Job, JobStat
from ..models.job import Status
from ..monitoring.database import PartState, database
from ..monitoring.health import full_health
from ..monitoring.workers import Crew, Vital
from ..postgres import fetch_rows, sql_of
from ..postgres.session import Session, connect
from ..postgres.timeout import within
from ..tasks.paths import RELAY
from ..tasks.registry import known_tasks
from ..tasks.task import Task
from .database import database_problems, lacks_right, unapplied

ARRIVES_WITHIN = 2.0  # seconds, for a notification
SLOW_COMMIT = 0.02  # seconds
COMMITS = 5
MOST_SKEW = 2.0  # seconds between the clocks of the server and of this machine
LATE = 60.0  # seconds
PATIENCE = 10.0  # seconds that one statement of an examination may take
LONG_DEPLOY = 3600.0  # seconds in which workers may run two versions
MOST_KEPT = 5_000_000  # rows
USUAL_TIME = 60.0  # seconds that a task without a timeout may take
SHORTEST_RETENTION = timedelta(minutes=1)
POOL_SIZE = 4  # the min_size of psycopg_pool, which is also the greatest size if none is given
_SQL = sql_of(__file__, "doctor")


class Complaint(NamedTuple):
    """One thing that is wrong."""

    text: str
    fix: str
    is_minor: bool = False


@dataclass(slots=True)
class Examination:
    """What was examined, and what is wrong there."""

    code: str
    title: str
    complaints: list[Complaint] = field(default_factory=list)
    note: str = ""  # what was found if nothing is wrong

    @property
    def state(self) -> str:
        """ "fine", "minor" or "act": whether there are complaints, and one that is not minor."""
        if any(not complaint.is_minor for complaint in self.complaints):
            return "act"
        return "minor" if self.complaints else "fine"

    def as_json(self) -> dict[str, Any]:
        """Return it as values."""
        complaints = [complaint._asdict() for complaint in self.complaints]
        return {"code": self.code, "title": self.title, "state": self.state, "note": self.note,
                "complaints": complaints}  # fmt: skip


def examine(alias: str) -> list[Examination]:
    """Examine a database and its queues. An error of the database is a complaint, and never raised."""
    try:
        if waiting := unapplied(alias, "django_pgqueue"):
            text = _("Migrations are not applied: %(names)s.") % {"names": ", ".join(waiting)}
            fix = _("Run: %(command)s") % {"command": f"manage.py migrate --database {alias}"}
            return [Examination("installation", str(_TITLES["installation"]), [Complaint(text, fix)])]
        return [*_examinations(alias)]
    except (Error, psycopg.Error) as error:
        text, fix = str(error).strip(), _("Is the server running, and is DATABASES correct?")
        if isinstance(error.__cause__ or error, InsufficientPrivilege):
            problem = lacks_right(alias, error)
            text, fix = f"{problem.msg} ({problem.id})", str(problem.hint)
        return [Examination("connection", str(_TITLES["connection"]), [Complaint(text, fix)])]


_TITLES = {
    "connection": gettext_lazy("Connection"),
    "installation": gettext_lazy("Tables, functions and rights"),
    "queues": gettext_lazy("Queues and workers"),
    "server": gettext_lazy("Server"),
    "wakeup": gettext_lazy("Wake-up"),
    "commit": gettext_lazy("Commits"),
    "clock": gettext_lazy("Clock"),
    "settings": gettext_lazy("Settings"),
    "versions": gettext_lazy("Versions of workers"),
    "schedules": gettext_lazy("Schedules"),
    "indexes": gettext_lazy("Indexes"),
    "history": gettext_lazy("Kept history"),
}


def _examinations(alias: str) -> Iterator[Examination]:
    def of(code: str, complaints: Iterator[Complaint]) -> Examination:
        found = within(alias, PATIENCE, lambda: [*complaints])
        return Examination(code, str(_TITLES[code]), [_no_answer()] if found is None else found)

    yield of("installation", _installation(alias))
    yield of("queues", _queues(alias))
    yield of("server", _server(alias))
    with closing(connect(alias, name="pgqueue doctor")) as session:
        yield _wakeup(alias, session)
        yield _commit(session)
        yield _clock(session)
    lease = conf.current().lease
    parameters = {"settings": [*_SETTINGS, *_END_TRANSACTIONS], "lease": lease, "late": LATE}
    rows = within(alias, PATIENCE, lambda: fetch_rows(alias, _SQL, parameters))
    if rows is None:
        yield of("settings", iter([_no_answer()]))
        return
    figures = SimpleNamespace(**json.loads(rows[0][0]))
    for code, find in _OF_FIGURES.items():
        yield of(code, find(alias, figures))


def _no_answer() -> Complaint:
    text = _("The server did not answer within %(limit)s.") % {"limit": age(PATIENCE)}
    fix = _("Look for locks and long transactions: %(command)s")
    return Complaint(text, fix % {"command": "manage.py pgqueue database"})


def _installation(alias: str) -> Iterator[Complaint]:
    for each in database_problems(alias):
        yield Complaint(f"{each.msg} ({each.id})", str(each.hint or ""), each.level <= WARNING)


def _queues(alias: str) -> Iterator[Complaint]:
    for problem in full_health(alias).problems:
        yield Complaint(problem.text, problem.fix, problem.is_minor)
    crew, relayed = Crew(alias), {"queue_name": RELAY}
    waits = Job.objects.using(alias).filter(shelf=0, status__in=(Status.PENDING, Status.RETRY), **relayed)
    is_used = waits.exists() or JobStat.objects.using(alias).filter(**relayed).exists()
    if is_used and crew.count(Vital.RUNNING) and not crew.serving(RELAY):
        text = _("Calls for other databases do not arrive: no worker serves the queue %(queue)s.")
        fix = _("Start a worker: %(command)s") % {"command": f"manage.py runqueueworker --queues {RELAY}"}
        yield Complaint(text % {"queue": RELAY}, fix)


def _server(alias: str) -> Iterator[Complaint]:
    for part in database(alias):
        if part.state != PartState.FINE:
            yield Complaint(f"{part.title}: {part.finding}", part.rule, part.state != PartState.ACT)


def _wakeup(alias: str, session: Session) -> Examination:
    """Send a notification from one session to another, as an enqueue does to a worker."""
    found = Examination("wakeup", str(_TITLES["wakeup"]))
    if session.pooled:
        text = _("The database is behind a transaction pooler, so workers poll every %(seconds)g s.")
        fix = _("Let workers connect directly: give them a DATABASES entry without the pooler.")
        seconds = {"seconds": conf.current().shortest_poll}
        found.complaints.append(Complaint(text % seconds, fix, is_minor=True))
        if not connections[alias].settings_dict.get("DISABLE_SERVER_SIDE_CURSORS"):
            text = _("Behind a transaction pooler, server-side cursors fail.")
            fix = _("Set DISABLE_SERVER_SIDE_CURSORS to True in DATABASES[%(alias)r].") % {"alias": alias}
            found.complaints.append(Complaint(text, fix))
        return found
    channel = f"pgqueue_doctor_{token_hex(8)}"
    session.connection.execute(f'LISTEN "{channel}"')
    with closing(connect(alias, name="pgqueue doctor")) as sender:
        began = monotonic()
        sender.connection.execute("SELECT pg_notify(%s, '')", [channel])
    if not [*session.connection.notifies(timeout=ARRIVES_WITHIN, stop_after=1)]:
        text = _("A notification did not arrive within %(limit)s.") % {"limit": age(ARRIVES_WITHIN)}
        fix = _("Do all connections of this alias lead to the same server and the same database?")
        found.complaints.append(Complaint(text, fix))
    found.note = _("a notification arrives after %(time).1f ms") % {"time": 1000 * (monotonic() - began)}
    return found


def _commit(session: Session) -> Examination:
    """Take the time of some commits that write a little to the log of the server, and to no table."""
    seconds = []
    for _each in range(COMMITS):
        began = monotonic()
        session.run(("SELECT pg_logical_emit_message(true, 'pgqueue', 'doctor')", None), durable=True)
        seconds.append(monotonic() - began)
    usual = median(seconds)
    found = Examination("commit", str(_TITLES["commit"]))
    found.note = _("a commit takes %(time).1f ms") % {"time": 1000 * usual}
    if usual > SLOW_COMMIT:
        text = _("A commit takes %(time).0f ms: the disk, or a synchronous standby, is slow.")
        fix = _("Look at the disk of the write-ahead log, and at synchronous_standby_names and commit_delay.")
        found.complaints.append(Complaint(text % {"time": 1000 * usual}, fix))
    return found


def _here() -> float:
    return datetime.now(UTC).timestamp()


def _clock(session: Session) -> Examination:
    """Compare the clock of the server with that of this machine, in the middle of a round trip."""
    before = _here()
    server = float(session.value("SELECT extract(epoch FROM clock_timestamp())"))
    skew = server - (before + _here()) / 2
    found = Examination("clock", str(_TITLES["clock"]))
    found.note = _("the clocks differ by %(time).1f ms") % {"time": 1000 * abs(skew)}
    if abs(skew) > MOST_SKEW:
        text = _("The clock of this machine differs from that of the server by %(time)s.")
        fix = _("Let a service such as chrony set both. The queue goes by the clock of the server.")
        found.complaints.append(Complaint(text % {"time": age(abs(skew))}, fix))
    return found


_LOSES = gettext_lazy(
    "A crash of the server may lose jobs whose enqueue has returned: %(name)s is %(value)s."
)
_GROWS = gettext_lazy("Autovacuum does not run, so the tables grow: %(name)s is %(value)s.")
_ENDS = gettext_lazy("Sessions of web processes end while they wait: %(name)s is %(value)s.")
#: The settings of the server that must not have a value, and what it does.
_SETTINGS: dict[str, tuple[Callable[[str], bool], Any]] = {
    "autovacuum": ((lambda value: value == "off"), _GROWS),
    "track_counts": ((lambda value: value == "off"), _GROWS),
    "fsync": ((lambda value: value == "off"), _LOSES),
    "full_page_writes": ((lambda value: value == "off"), _LOSES),
    "synchronous_commit": ((lambda value: value == "off"), _LOSES),
    "idle_session_timeout": ((lambda value: 0 < int(value) < 10_000), _ENDS),
    "default_transaction_read_only": (
        (lambda value: value == "on"),
        gettext_lazy("Nothing can be enqueued: %(name)s is %(value)s."),
    ),
}


def _settings(alias: str, figures: SimpleNamespace) -> Iterator[Complaint]:
    for name, (is_bad, text) in _SETTINGS.items():
        value = figures.settings.get(name, "")
        if value and is_bad(value):
            fix = _("Change it with ALTER SYSTEM, or with ALTER ROLE and ALTER DATABASE if it is set there.")
            yield Complaint(str(text) % {"name": name, "value": value}, fix)
    if figures.notify == "off":
        text = _("Enqueuing does not wake up workers, since pgqueue.notify is off.")
        yield Complaint(
            text, _("Reset it for the role and the database: ALTER ROLE ... RESET pgqueue.notify")
        )

    yield from _of_tasks(alias, figures)
    yield from _of_pool(alias, figures)


_OUTLAST = gettext_lazy(
    "The server ends the transaction of an atomic task before its timeout: %(name)s is %(limit)s. %(tasks)s"
)
#: The settings of the server that end a transaction. Atomic tasks have the settings of their role.
_END_TRANSACTIONS = ("idle_in_transaction_session_timeout", "transaction_timeout")


def _of_tasks(alias: str, figures: SimpleNamespace) -> Iterator[Complaint]:
    """Compare what tasks declare with the settings of Django and of the server."""
    settings = conf.current()
    tasks = [task for task in known_tasks().values() if task.database in (None, alias)]
    times = {task: task.policy().timeout or USUAL_TIME for task in tasks}
    for name in _END_TRANSACTIONS:
        limit = int(figures.settings.get(name) or 0) / 1000
        if cut := [task for task in tasks if limit and task.atomic and times[task] > limit]:
            fix = _(
                "Give these tasks shorter timeouts, or the role of the workers a longer one: %(statement)s"
            )
            statement = {"statement": f"ALTER ROLE ... SET {name}"}
            values = {"name": name, "limit": age(limit), "tasks": _paths(cut)}
            yield Complaint(str(_OUTLAST) % values, fix % statement)
    once = [task for task in tasks if task.on_lost == "fail" and task.policy().timeout]
    if cut := [task for task in once if times[task] > settings.grace]:
        text = _("A stop of a worker fails jobs that still run after GRACE (%(limit)s): %(tasks)s")
        fix = _('Let GRACE be longer than the timeouts of tasks with on_lost="fail".')
        yield Complaint(text % {"limit": age(settings.grace), "tasks": _paths(cut)}, fix, is_minor=True)
    windows = {task: task.unique.window for task in tasks if task.unique and task.unique.window}
    if cut := [task for task, window in windows.items() if window > settings.retention]:
        text = _("The window of unique jobs is longer than RETENTION (%(limit)s): %(tasks)s")
        fix = _("An enqueue may return a job that is no longer kept. Keep jobs for as long as the window.")
        limit_text = age(settings.retention.total_seconds())
        yield Complaint(text % {"limit": limit_text, "tasks": _paths(cut)}, fix, is_minor=True)
    if settings.retention < SHORTEST_RETENTION:
        text = _("RETENTION is %(limit)s, so a result may be gone before its caller reads it.")
        fix = _("Keep jobs for a minute at least, and for as long as others wait for their results.")
        yield Complaint(text % {"limit": age(settings.retention.total_seconds())}, fix, is_minor=True)


def _paths(tasks: list[Task[..., Any]]) -> str:
    return first_few(sorted(task.module_path for task in tasks))


def _of_pool(alias: str, figures: SimpleNamespace) -> Iterator[Complaint]:
    pool = connections[alias].settings_dict["OPTIONS"].get("pool")
    if pool:
        given = pool if isinstance(pool, dict) else {}
        size = given.get("max_size") or given.get("min_size", POOL_SIZE)
        if size < figures.slots:
            text = _("Workers run up to %(slots)d jobs at once, but a pool has %(size)d connections.")
            fix = _("Set max_size in OPTIONS['pool'] of DATABASES[%(alias)r] to the number of threads.")
            yield Complaint(
                text % {"slots": figures.slots, "size": size}, fix % {"alias": alias}, is_minor=True
            )


def _versions(alias: str, figures: SimpleNamespace) -> Iterator[Complaint]:
    if len(figures.versions) > 1 and figures.versions[-1]["seconds"] > LONG_DEPLOY:
        text = _("Workers run several versions for %(time)s: %(versions)s.")
        versions = ", ".join(f"{each['version']} ({each['workers']})" for each in figures.versions)
        fix = _("Replace the workers of the old version: %(command)s")
        yield Complaint(
            text % {"time": age(figures.versions[-1]["seconds"]), "versions": versions},
            fix % {"command": "manage.py pgqueue drain-worker ID"},
        )


def _schedules(alias: str, figures: SimpleNamespace) -> Iterator[Complaint]:
    for each in figures.late:
        text = _("%(name)s has been due for %(time)s.")
        if each["seconds"] is None:
            text = _("%(name)s cannot compute its next run.")
        seconds = {"name": each["name"], "time": age(each["seconds"] or 0.0)}
        fix = _("To see why: %(command)s") % {"command": f"manage.py pgqueue schedules show {each['name']}"}
        yield Complaint(text % seconds, fix)


def _indexes(alias: str, figures: SimpleNamespace) -> Iterator[Complaint]:
    for index in bloated_indexes(alias):
        text = _("%(name)s has %(size)s for %(rows)s rows: most of it is empty.")
        statement = f"REINDEX INDEX CONCURRENTLY {index.name}"
        if index.is_leftover:
            text = _("%(name)s is invalid: a REINDEX that was interrupted has left it.")
            statement = f"DROP INDEX CONCURRENTLY {index.name}"
        size = {"name": index.name, "size": filesizeformat(index.bytes), "rows": number(index.live_rows)}
        fix = _("Run in SQL: %(statement)s. Or let workers do it: %(setting)s.")
        if conf.current().reindex:
            fix = _("Workers do this within hours, if their role owns the table. In SQL: %(statement)s")
        setting = {"statement": statement, "setting": 'PGQUEUE["REINDEX"] = True'}
        yield Complaint(text % size, fix % setting, is_minor=True)


def _history(alias: str, figures: SimpleNamespace) -> Iterator[Complaint]:
    if figures.kept > MOST_KEPT:
        text = _("%(count)s finished jobs are kept for longer than RETENTION.") % {
            "count": number(figures.kept)
        }
        fix = _("Shorten FAILED_RETENTION, or the retention of single queues: %(command)s")
        yield Complaint(text, fix % {"command": "manage.py pgqueue queues"}, is_minor=True)


_OF_FIGURES: dict[str, Callable[[str, SimpleNamespace], Iterator[Complaint]]] = {
    "settings": _settings,
    "versions": _versions,
    "schedules": _schedules,
    "indexes": _indexes,
    "history": _history,
}
