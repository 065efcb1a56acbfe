"""A look at the queue as rows of text, whoever draws them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from django.db import Error, connections
from django.utils import timezone
from django.utils.translation import gettext as _

from ...formatting import period, throughput
from ...models import Job
from ...models.job import Status
from ...monitoring.failures import GroupFigures, groups
from ...monitoring.health import State, judge
from ...monitoring.health import read as read_state
from ...monitoring.queues import MOST, Depth
from ...monitoring.spans import HOUR, rates
from ...monitoring.workers import Vital, queues_text
from ...postgres.clock import server_now
from ...postgres.timeout import within
from ...redaction import redact_text
from .._figures_texts import seconds_text
from .._jobs import amount, readable
from .._output import plain

if TYPE_CHECKING:
    from collections.abc import Callable

    from .._output import Marks

Style = Literal["", "good", "bad", "warn", "dim", "bar", "head", "alarm", "calm"]

#: The names of the panes, in the order of their keys.
PANES = ("queues", "workers", "running", "failures")
#: How each pane can be sorted. The first one is the usual order.
SORTS = {
    "queues": ("age", "ready", "rate", "name"),
    "workers": ("name", "busy"),
    "running": ("longest", "newest", "task"),
    "failures": ("most", "newest", "task"),
}
_BAR = 10
_FINGERPRINT = 12  # characters


class Cell(NamedTuple):
    """A text, and what it means."""

    text: str
    style: Style = ""


@dataclass(slots=True)
class Pane:
    """A table. The name of its first column says what it is about."""

    head: Sequence[str]
    rows: list[list[Cell]] = field(default_factory=list)
    right: frozenset[int] = frozenset()
    """The columns that are aligned to the right."""
    empty: str = ""
    """What to say if there are no rows."""


def headline(reading: Reading) -> Cell:
    """Return the verdict, or why nothing could be read."""
    if reading.error:
        return Cell(f"The database {reading.database!r} cannot be read: {plain(reading.error)}", "alarm")
    slow = f" Too slow to show: {', '.join(reading.slow)}." if reading.slow else ""
    return Cell(plain(reading.verdict) + slow, "calm" if reading.is_healthy and not slow else "alarm")


def tiles(reading: Reading, marks: Marks) -> list[tuple[str, Cell]]:
    """Return the four most important figures with their names."""
    state = reading.state
    depths = list((state.depths or {}).values())
    ready = _count(sum(depth.ready for depth in depths))
    active = [depth.oldest_ready for depth in depths if depth.ready and not depth.is_paused]
    if active:
        numbers = {"count": ready, "age": seconds_text(max(active))}
        ready = _("%(count)s, oldest %(age)s") % numbers
    slots, busy = (state.crew.slots, state.crew.busy) if state.crew else (0, 0)
    failed, before = state.failed
    used = {"busy": f"{busy:,}", "slots": f"{slots:,}"}
    hours = {"count": f"{failed:,}", "before": f"{before:,}"}
    return [
        (_("Ready"), Cell(ready)),
        (_("Running"), Cell(f"{_('%(busy)s of %(slots)s slots') % used} {_bar(busy, slots, marks)}")),
        (_("Finished"), Cell(throughput(state.per_second))),
        (
            _("Failed"),
            Cell(_("%(count)s in 1 h, %(before)s before") % hours, "bad" if failed > before else ""),
        ),
    ]


def panes(reading: Reading, marks: Marks, sorts: dict[str, str]) -> dict[str, Pane]:
    """Return the tables, each in the order that ``sorts`` asks for."""
    return {
        "queues": _queues(reading, sorts.get("queues", "")),
        "workers": _workers(reading, marks, sorts.get("workers", "")),
        "running": _running(reading, marks, sorts.get("running", "")),
        "failures": _failures(reading, sorts.get("failures", "")),
    }


def _queues(reading: Reading, order: str) -> Pane:
    depths, crew = reading.state.depths or {}, reading.state.crew

    def rate(depth: Depth) -> float:
        return reading.rates.get(depth.queue_name, 0.0)

    keys: dict[str, Any] = {
        "ready": lambda depth: (-depth.ready, depth.queue_name),
        "rate": lambda depth: (-rate(depth), depth.queue_name),
        "name": lambda depth: depth.queue_name,
    }
    found = [depths.get(name, Depth(name)) for name in {*depths, *reading.rates}]
    by_age = lambda depth: (depth.is_paused, -depth.oldest_ready, depth.queue_name)  # noqa: E731
    head = (
        _("Queues"), _("Ready"), _("Oldest"), _("Rate"), _("Running"), _("Scheduled"), _("Retrying"),
        _("Blocked"), _("Workers"), "",
    )  # fmt: skip
    pane = Pane(head, right=frozenset(range(1, 9)), empty=_("No queue has live jobs."))
    for depth in sorted(found, key=keys.get(order, by_age)):
        workers = crew.serving(depth.queue_name) if crew else 0
        is_unserved = not workers and depth.ready and not depth.is_paused
        pane.rows.append(
            [
                Cell(depth.queue_name),
                Cell(_count(depth.ready)),
                Cell(seconds_text(depth.oldest_ready) if depth.ready else "-"),
                Cell(throughput(rate(depth)) if rate(depth) else "-"),
                *(Cell(_count(number)) for number in (depth.running, *_waiting(depth))),
                Cell(str(workers), "bad" if is_unserved else ""),
                Cell(_("paused"), "warn") if depth.is_paused else Cell(""),
            ]
        )
    return pane


def _waiting(depth: Depth) -> tuple[int, int, int]:
    return depth.scheduled, depth.retrying, depth.blocked


def _lost(worker: Any) -> str:
    return _("%(count)d lost") % {"count": worker.lost} if worker.lost else ""


def _workers(reading: Reading, marks: Marks, order: str) -> Pane:
    pane = Pane((_("Workers"), _("State"), _("Slots"), "", _("Queues"), _("Heartbeat"), _("Version")))
    pane.empty = _("No worker is registered.")
    workers: list[Any] = list(reading.state.crew.workers) if reading.state.crew else []
    if order == "busy":
        workers.sort(key=lambda worker: -worker.busy)
    for worker in workers:
        state: Style = {Vital.RUNNING: "good", Vital.DRAINING: "warn"}.get(worker.vital, "bad")  # type: ignore[assignment]
        pane.rows.append(
            [
                Cell(str(worker)),
                Cell(worker.vital.value, state),
                Cell(_bar(worker.busy, worker.slots, marks), "bar"),
                Cell(f"{worker.busy}/{worker.slots}" + (f" ({lost})" if (lost := _lost(worker)) else "")),
                Cell(queues_text(worker)),
                Cell(f"{period(worker.age)} ago"),
                Cell(worker.version, "dim"),
            ]
        )
    return pane


def _running(reading: Reading, marks: Marks, order: str) -> Pane:
    head = (_("Running jobs"), _("ID"), _("Runs for"), _("Queue"), _("Worker"), _("Progress"))
    pane = Pane(head, right=frozenset({1, 2}), empty=_("No job is running."))
    crew = reading.state.crew
    names = {worker.pk: str(worker) for worker in crew.workers} if crew else {}
    jobs = list(reading.running)
    if order == "newest":
        jobs.reverse()
    elif order == "task":
        jobs.sort(key=lambda job: (job.task_path, job.pk))
    for job in jobs:
        since = job.last_attempted_at or reading.at
        pane.rows.append(
            [
                Cell(job.task_path),
                Cell(str(job.pk)),
                Cell(period(max(timedelta(), reading.at - since))),
                Cell(job.queue_name),
                Cell(names.get(job.worker, "gone"), "" if job.worker in names else "bad"),
                _progress(job, marks),
            ]
        )
    return pane


def _progress(job: Any, marks: Marks) -> Cell:
    if job.cancel_requested_at is not None:
        return Cell("asked to stop", "warn")
    progress = job.progress
    step = f"step {job.current_step}" if job.current_step else ""
    if progress is None:
        return Cell(step)
    bar = "" if progress.fraction is None else f"{_bar(progress.done, progress.total, marks)} "
    note = redact_text(progress.note, job.task_path)
    return Cell(", ".join(filter(None, (f"{bar}{amount(progress)} {note}".strip(), step))), "bar")


def _failures(reading: Reading, order: str) -> Pane:
    head = (
        _("Failures of the last hour"), _("Failed"), _("Retried"), _("Last seen"), _("Task"), _("Fingerprint")
    )  # fmt: skip
    pane = Pane(head, right=frozenset({1, 2, 3}), empty=_("Nothing has failed."))
    found = list(reading.failures)
    if order == "newest":
        found.sort(key=lambda group: group.last_seen, reverse=True)
    elif order == "task":
        found.sort(key=lambda group: list(group.tasks))
    for group in found:
        pane.rows.append(
            [
                Cell(f"{group.name}: {group.message}" if group.message else group.name),
                Cell(f"{group.failed:,}", "bad" if group.failed else ""),
                Cell(f"{group.retried:,}"),
                Cell(f"{period(max(timedelta(), reading.at - group.last_seen))} ago"),
                Cell(", ".join(group.tasks)),
                Cell(group.fingerprint[:_FINGERPRINT], "dim"),
            ]
        )
    return pane


def _bar(part: float, whole: float | None, marks: Marks) -> str:
    return marks.bar(part / whole if whole else 0.0, _BAR)


def _count(number: int) -> str:
    return _("about %(count)s") % {"count": f"{number:,}"} if number >= MOST else f"{number:,}"


# ----------------------------------------------------------------------------
# One look at the queue. Each part has a time limit of its own, and one that is too slow is left out.

PATIENCE = 2.0  # seconds that one statement may take
MOST_RUNNING = 100
MOST_FAILURES = 20

T = TypeVar("T")


@dataclass(slots=True)
class Reading:
    """What was found."""

    database: str
    at: datetime
    """When: the time of the server, if it answers."""
    verdict: str = ""
    is_healthy: bool = False
    state: State = field(init=False)
    rates: dict[str, float] = field(default_factory=dict)
    running: list[Any] = field(default_factory=list)
    """The jobs that have run longest."""
    failures: list[GroupFigures] = field(default_factory=list)
    slow: list[str] = field(default_factory=list)
    """The parts that took too long."""
    error: str = ""
    """Why the database could not be read at all."""

    def __post_init__(self) -> None:
        self.state = State(self.database, None, None, None, None, None, None)


def read(alias: str) -> Reading:
    """Read everything. This never raises an error of the database."""
    reading = Reading(alias, timezone.now())
    try:
        reading.at = _part(reading, "time", lambda: server_now(alias)) or reading.at
        state = reading.state = read_state(alias)
        found = judge(state)
        reading.verdict, reading.is_healthy = found.line, found.is_healthy
        parts = {"queues": state.depths, "workers": state.crew, "minutes": state.minutes}
        reading.slow += [name for name, part in parts.items() if part is None]
        reading.rates = _part(reading, "rates", lambda: rates(alias)) or {}
        reading.running = _part(reading, "running jobs", lambda: _read_running(alias)) or []
        reading.failures = _part(reading, "failures", lambda: groups(alias, HOUR, most=MOST_FAILURES)) or []
    except Error as error:
        reading.error = " ".join(str(error).split()) or type(error).__name__
        connections[alias].close()  # the next look connects again
    return reading


def _part(reading: Reading, name: str, find: Callable[[], T]) -> T | None:
    found = within(reading.database, PATIENCE, find)
    if found is None:
        reading.slow.append(name)
    return found


def _read_running(alias: str) -> list[Any]:
    jobs = readable(Job.objects.using(alias).filter(shelf=0, status=Status.RUNNING))
    return list(jobs.order_by("last_attempted_at", "pk")[:MOST_RUNNING])
