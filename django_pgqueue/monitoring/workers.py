"""Whether workers are alive, on the clock of the database.

The state in the row of a worker is "running" until a supervisor recovers its jobs and deletes the row. After
a complete outage, there is no such supervisor, so the state follows from the last heartbeat.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta
from itertools import chain
from math import ceil
from typing import Any, NamedTuple

from django.db import models
from django.db.models import F, OuterRef, QuerySet, Subquery, Value
from django.db.models.functions import Coalesce, Now
from django.utils.translation import gettext as _, gettext_lazy, pgettext, pgettext_lazy

from .. import conf
from ..models import LiveJob, Worker
from ..postgres import fetch_rows, fetch_value, sql_of
from ..postgres.ask import Answers, ask_all
from ..postgres.session import SUPERVISOR
from .depth import with_more


class Vital(models.TextChoices):
    """The state of a worker."""

    RUNNING = "running", pgettext_lazy("worker", "running")
    DRAINING = "draining", gettext_lazy("draining")
    SILENT = "silent", gettext_lazy("silent")
    DEAD = "dead", gettext_lazy("dead")


def with_vitals(workers: QuerySet[Worker]) -> QuerySet[Any]:
    """Annotate workers with the ``age`` of the last heartbeat on the database's clock, the seconds of
    ``allowed_silence``, after which one may be dead, and the ``busy`` slots, also of lost jobs.
    """
    settings = conf.current()
    running = LiveJob.objects.filter(status="running", worker=OuterRef("pk")).order_by()  # type: ignore[attr-defined]
    busy = Subquery(
        running.values("worker").annotate(n=models.Count("pk")).values("n"),
        output_field=models.IntegerField(),
    )
    age = models.ExpressionWrapper(Now() - F("heartbeat_at"), output_field=models.DurationField())
    allowed = models.Func(
        F("started_jobs"),
        Value(settings.heartbeat),
        Value(settings.lease),
        function="_pgqueue_allowed_silence",
        output_field=models.FloatField(),
    )
    return workers.annotate(age=age, allowed_silence=allowed, busy=Coalesce(busy, 0) + F("lost"))


def vital(worker: Any) -> Vital:
    """Return the state of a worker ``with_vitals``, regardless of the state in its row.

    It is dead if its last heartbeat is older than ``LEASE``, and silent if it has missed two heartbeats. A
    worker in another language sends them at its own pace, so it is silent after half of ``LEASE``.
    """
    if is_dead(worker.age):
        return Vital.DEAD
    allowed = conf.current().lease / 2 if worker.supervisor is None else worker.allowed_silence
    return Vital.SILENT if worker.age.total_seconds() > allowed else Vital(worker.state)


def is_dead(age: timedelta) -> bool:
    """Return whether a worker counts as dead if its last heartbeat is that old."""
    return age > timedelta(seconds=conf.current().lease)


_STARTING = sql_of(__file__, "starting")


def one_is_starting(alias: str) -> bool:
    """Return whether there is a supervisor, on any machine, none of whose processes has registered."""
    return bool(fetch_value(alias, _STARTING, SUPERVISOR))


def queues_text(worker: Worker) -> str:
    """Return the queues that a worker serves, in words: "all", "all but never", "mail, slow"."""
    if worker.queues:
        return ", ".join(worker.queues)
    if worker.exclude_queues:
        return _("all but %(queues)s") % {"queues": ", ".join(worker.exclude_queues)}
    return pgettext("queues", "all")


def state_text(worker: Any) -> str:
    """Return the state of a worker ``with_vitals``, and whether it was asked to end and has not seen that."""
    how = vital(worker)
    asked = {"replace": _("to be replaced"), "stop": _("to be stopped")}.get(worker.drain)
    if asked is None or how == Vital.DRAINING:
        return str(how.label)
    return _("%(state)s, %(asked)s") % {"state": how.label, "asked": asked}


def busy_text(worker: Any) -> str:
    """Return how many jobs a worker ``with_vitals`` runs, of how many. More may wait in its memory."""
    ahead = worker.busy - worker.slots
    text = _("%(busy)d of %(slots)d") % {"busy": min(worker.busy, worker.slots), "slots": worker.slots}
    if worker.lost:
        text = _("%(text)s, %(count)d by lost jobs") % {"text": text, "count": worker.lost}
    return text if ahead <= 0 else _("%(text)s, %(count)d claimed ahead") % {"text": text, "count": ahead}


class Crew:
    """The workers, each with its state in ``vital``; if none of them runs, also whether one is starting."""

    def __init__(self, alias: str) -> None:
        self.workers: list[Any] = list(with_vitals(Worker.objects.using(alias)).order_by("host", "pid", "pk"))
        for worker in self.workers:
            worker.vital = vital(worker)
        self.one_is_starting = not self.count(Vital.RUNNING) and one_is_starting(alias)

    def count(self, state: Vital) -> int:
        """Return how many workers are in a state."""
        return sum(worker.vital == state for worker in self.workers)

    def of(self, queue: str) -> list[Any]:
        """Return the workers of a queue, also ones that are dead or do not claim more jobs."""
        return [
            worker
            for worker in self.workers
            if (queue in worker.queues if worker.queues else queue not in worker.exclude_queues)
        ]

    def serving(self, queue: str) -> int:
        """Return how many workers claim jobs of a queue. Silent and draining ones do not count."""
        return sum(worker.vital == Vital.RUNNING for worker in self.of(queue))

    @property
    def slots(self) -> int:
        """How many jobs the workers that claim jobs can run at the same time."""
        return sum(worker.slots for worker in self.workers if worker.vital == Vital.RUNNING)

    @property
    def busy(self) -> int:
        """How many of these slots are in use. A worker may have claimed more short jobs than it has slots."""
        return sum(min(worker.busy, worker.slots) for worker in self.workers if worker.vital == Vital.RUNNING)


MOST_WANTED = 10_000  # ready jobs of a queue (pgqueue_wanted_slots)
_WANTED = "SELECT * FROM pgqueue_wanted_slots(%s::text[], make_interval(secs => %s))"


class Wanted(NamedTuple):
    """How many slots the jobs of a queue want. Its name is empty for schedules that are due."""

    queue_name: str
    ready: int  # 0 if the queue is paused, and more than MOST_WANTED if there are more
    running: int
    run_seconds: float  # how long an attempt of the queue takes
    slots: float

    @property
    def document(self) -> dict[str, Any]:
        """The figures for JSON."""
        return with_more(self._asdict(), "ready", most=MOST_WANTED)


@dataclass(frozen=True, slots=True)
class ScaleHint:
    """How many slots and workers the jobs want now. Autoscalers read it."""

    slots: int
    workers: int
    queues: list[Wanted]
    failed: str = ""  # which databases did not answer; their jobs do not count


def scale_hint(
    database: str | Collection[str],
    queues: Collection[str] = (),
    *,
    drain_within: float = 60.0,
    slots: int = 1,
    least: int = 0,
    most: int | None = None,
) -> ScaleHint:
    """Return how many workers with so many ``slots`` each run what runs, and what is ready within
    ``drain_within`` seconds: from ``least`` to ``most``. Without ``queues``, the jobs of all count.
    ``database``: an alias, or the aliases of several shards, which are asked side by side.
    """

    def read(alias: str) -> list[Wanted]:
        return [Wanted(*row) for row in fetch_rows(alias, _WANTED, [[*queues] or None, drain_within])]

    answers = (
        Answers({database: read(database)}, {}) if isinstance(database, str) else ask_all(database, read)
    )
    rows: dict[str, Wanted] = {}
    for row in chain.from_iterable(answers.given.values()):
        other = rows.get(row.queue_name, row._replace(ready=0, running=0, slots=0.0))
        rows[row.queue_name] = Wanted(
            row.queue_name,
            row.ready + other.ready,
            row.running + other.running,
            max(row.run_seconds, other.run_seconds),
            row.slots + other.slots,
        )
    wanted = ceil(sum(row.slots for row in rows.values()))
    workers = max(least, ceil(wanted / slots))
    return ScaleHint(wanted, workers if most is None else min(most, workers), [*rows.values()], str(answers))
