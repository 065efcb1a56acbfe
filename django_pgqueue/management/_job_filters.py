"""Which jobs are meant: the arguments of ``jobs``, ``retry``, ``cancel`` and ``run-now`` that choose them."""

from __future__ import annotations

import json
from argparse import ArgumentParser, ArgumentTypeError
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any

from django.core.management.base import CommandError
from django.db.models import BooleanField, Q, QuerySet
from django.db.models.expressions import RawSQL

from .. import conf
from ..encoding import meanings
from ..formatting import did_you_mean, storable
from ..jobs.limits import with_key
from ..models import Job
from ..models.job import Status, is_indexed
from ..postgres.clock import server_now
from ..redaction import names_of_call
from ..tasks.registry import declared_queues, known_tasks, queues_in_use
from ._arguments import job_id, since
from ._conditions import find_worker, whole_fingerprint
from ._output import Nothing

LIVE_SHELF, KEPT_SHELF = 0, 9

_MOST_SEEN = 1000  # jobs to read for the names of tasks that are not declared here


@dataclass(frozen=True, slots=True)
class Argument:
    """A value that an argument has, or a place in one: ``order_id=17``, ``customer.id=17``. A number is the
    place of a positional argument of the chosen task: ``0=17``.
    """

    name: str
    way: tuple[str, ...]  # names and numbers from the argument on
    values: tuple[str, ...]  # as JSON

    @classmethod
    def read(cls, text: str, task: str | None) -> Argument:
        """Parse it. The value is a text, and also what it is in JSON, unless that is a list or an object."""
        place, equals, value = text.partition("=")
        name, *way = place.strip().split(".")
        if not (equals and name and all(way)) or storable(text) != text:
            raise ArgumentTypeError(f"--arg must be such as order_id=17 or customer.id=17. It is {text!r}.")
        if name.isdecimal() and task is None:
            raise ArgumentTypeError(f"--arg {place}: a place is one of the arguments of a task. Add --task.")
        known = names_of_call(task).at(int(name)) if task and name.isdecimal() else name
        rules = conf.current().redact
        if not rules.are_names or any(map(rules.hide, (known, *way))):
            why = "REDACT hides it" if rules.are_names else "REDACT has patterns or a callable"
            raise ArgumentTypeError(f"--arg {place}: this argument cannot be searched, because {why}.")
        return cls(name, tuple(way), tuple(map(json.dumps, meanings(value))))

    def condition(self, task: str | None) -> Q:
        """Return the condition for jobs, of this task if it is known. Positional arguments have the names of
        the parameters if the task is in the code of this project.
        """
        if self.name.isdecimal():
            return Q(self._at("args", self.name))
        found, places = Q(self._at("kwargs", self.name)), defaultdict[int, list[str]](list)
        for path in known_tasks() if task is None else [task]:
            names = names_of_call(path).each
            if self.name in names:
                places[names.index(self.name)].append(path)
        for place, paths in places.items():
            found |= Q(self._at("args", str(place)), task_path__in=paths)
        return found

    @property
    def entry(self) -> str:
        """What the index of arguments has of it; empty if it has nothing of such a place."""
        is_whole = not (self.way or self.name.isdecimal())
        return f"{self.name}={json.loads(self.values[-1])}" if is_whole else ""

    def _at(self, column: str, first: str) -> RawSQL:
        # The column has no table: in a subquery, Django gives it another name.
        return RawSQL(  # noqa: S611 - constants
            f"{column} #> %s::text[] = ANY (%s::jsonb[])",
            [[first, *self.way], list(self.values)],
            BooleanField(),
        )


@dataclass(frozen=True, slots=True)
class Filters:
    """What the chosen jobs have in common, by the names of the options. An empty value does not matter."""

    status: tuple[Status, ...] = ()
    queue: str | None = None
    task: str | None = None
    since: datetime | None = None
    key: str | None = None
    batch: int | None = None
    fingerprint: str | None = None
    arg: tuple[Argument, ...] = ()
    worker: int | None = None

    def jobs(self, alias: str) -> QuerySet[Job]:
        """Return the chosen jobs. The conditions name the leaves and the indexes that have them."""
        jobs = Job.objects.using(alias)
        if self.status:
            jobs = jobs.filter(status__in=self.status)
            are_finished = {state.is_terminal for state in self.status}
            if {*self.status} == {Status.FAILED}:
                jobs = jobs.filter(shelf=KEPT_SHELF)
            elif len(are_finished) == 1:
                shelves = "shelf__gt" if True in are_finished else "shelf"
                jobs = jobs.filter(**{shelves: LIVE_SHELF})
        equal = {
            "queue_name": self.queue, "task_path": self.task, "error_fingerprint": self.fingerprint,
            "batch_id": self.batch,
        }  # fmt: skip
        jobs = jobs.filter(**{name: value for name, value in equal.items() if value})
        if self.fingerprint:  # the leaves that have an index on it
            jobs = jobs.filter(shelf__in=(LIVE_SHELF, KEPT_SHELF))
        if self.worker is not None:
            jobs = jobs.filter(worker=self.worker, status=Status.RUNNING, shelf=LIVE_SHELF)
        if self.since is not None:
            waits = Q(shelf=LIVE_SHELF, enqueued_at__gte=self.since)
            jobs = jobs.filter(waits | Q(shelf__gt=LIVE_SHELF, finished_at__gte=self.since))
        for argument in self.arg:
            jobs = jobs.filter(argument.condition(self.task))
        return with_key(jobs, self.key) if self.key else jobs

    def indexed_jobs(self, alias: str) -> QuerySet[Job]:
        """Return the chosen jobs with the arguments in their index (``search=``); all chosen if none has."""
        jobs = self.jobs(alias)
        for entry in filter(None, (argument.entry for argument in self.arg)):
            indexed = jobs.filter(is_indexed(entry))
            jobs = indexed if indexed.exists() else jobs
        return jobs


def statuses(text: str) -> tuple[Status, ...]:
    """Parse ``failed,retry``."""
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in Status.values:
            hint = did_you_mean(name, Status.values, f"The statuses are {', '.join(Status.values)}.")
            raise ArgumentTypeError(f"{name!r} is not a status. {hint}")
    return tuple(dict.fromkeys(Status(name) for name in names))


def add_filters(parser: ArgumentParser, *, status: str) -> None:
    """Add the ids and the options. ``status`` says which states are chosen without the option."""
    parser.add_argument("job", type=job_id, nargs="*", metavar="ID", help="ids, such as 5 or other:5")
    since_text = "that ended since, or were enqueued since if they are not finished: 30m, 2h, or a time"
    error_text = "that are not finished or have failed, and whose last error has this fingerprint"
    for name, read, metavar, text in (
        ("status", statuses, "A,B", f"in these states, such as failed or pending,retry ({status})"),
        ("queue", str, "NAME", "of this queue"),
        ("task", str, "PATH", "of this task, such as shop.tasks.sync"),
        ("since", since, "WHEN", since_text),
        ("key", str, "KEY", "that are not finished and have this limit key or unique key"),
        ("batch", int, "ID", "of this batch"),
        ("fingerprint", str, "HASH", error_text),
        ("arg", str, "NAME=VALUE", "with this argument, such as order_id=17; may be repeated"),
        ("worker", str, "WORKER", "that this worker runs now: its name or its id"),
    ):
        how = "append" if name == "arg" else "store"
        parser.add_argument(f"--{name}", action=how, type=read, metavar=metavar, help=text)


def filters_of(options: dict[str, Any], alias: str) -> Filters:
    """Return the filters that the options ask for. Ids of jobs exclude all of them."""
    given: dict[str, Any] = {field.name: options[field.name] or None for field in fields(Filters)}
    wanted, when = given["status"] or (), given["since"]
    given["status"] = status = wanted if isinstance(wanted, tuple) else statuses(",".join(wanted))
    if options["job"] and (any(given.values()) or options.get("after")):
        raise ArgumentTypeError("Give either ids or options that choose jobs, not both.")
    for name in ("queue", "task", "key", "fingerprint"):
        if "\0" in (given[name] or ""):
            raise ArgumentTypeError(f"--{name} contains a NUL character.")
    texts = given["arg"] or ()
    texts = [texts] if isinstance(texts, str) else texts
    given["arg"] = tuple(Argument.read(text, given["task"]) for text in texts)
    if given["worker"] is not None and set(status) - {Status.RUNNING}:
        raise ArgumentTypeError("--worker chooses jobs that run now. Leave out --status.")
    if given["key"] is not None and status and all(each.is_terminal for each in status):
        raise ArgumentTypeError("--key finds jobs that are not finished. Leave out --status.")
    given["since"] = server_now(alias) - when if isinstance(when, timedelta) else when
    if given["fingerprint"] is not None:
        given["fingerprint"] = whole_fingerprint(alias, given["fingerprint"])
    if given["worker"] is not None:
        given["worker"] = find_worker(alias, str(given["worker"])).pk
    return Filters(**given)


def with_ids(jobs: QuerySet[Job], ids: Sequence[int]) -> list[Any]:
    """Return the jobs with these ids, which must all exist, in this order."""
    found = jobs.in_bulk(ids)
    if missing := [str(pk) for pk in ids if pk not in found]:
        some, have = ("job", "has") if len(missing) == 1 else ("jobs", "have")
        raise CommandError(
            f"No {some} in the database {jobs.db!r} {have} the id {', '.join(missing)}. It was never "
            "committed, or it is finished and no longer kept."
        )
    return [found[pk] for pk in ids]


def check_names(filters: Filters, alias: str) -> None:
    """Refuse the name of a queue or a task that nothing has. To be called if no job was found."""
    if filters.queue:
        _check("queue", filters.queue, declared_queues() | queues_in_use(alias))
    if filters.task:
        live = Job.objects.using(alias).filter(shelf=LIVE_SHELF)
        seen = live.values_list("task_path", flat=True)[:_MOST_SEEN]
        _check("task", filters.task, {*known_tasks(), *seen})


def _check(what: str, name: str, known: Iterable[str]) -> None:
    known = sorted(known)
    if name not in known:
        # The name of a function leads to the path of its task.
        word = next((path for path in known if what == "task" and path.endswith(f".{name}")), name)
        hint = did_you_mean(word, known, f"Known: {', '.join(known[:20])}." if known else "")
        text = f"There is no job of the {what} {name!r}, and the {what} is not known. {hint}"
        raise Nothing(text.rstrip())
