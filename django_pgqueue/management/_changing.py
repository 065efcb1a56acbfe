"""Change many jobs from the command line: count them, ask, and go through them in chunks.

The jobs are those that exist and are in the chosen states when they are counted. A job that gets there later
is left alone: it has a higher id, or it ended after the count. Otherwise a job that fails again at once would
be retried again and again.

Each chunk is one transaction that is committed before the next one begins. So no lock is held for long, and
what has been done stays done if a user presses Ctrl-C.
"""

from __future__ import annotations

import signal
import sys
import threading
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from django.core.management.base import CommandError, OutputWrapper
from django.db import transaction
from django.db.models import Count, Q, QuerySet
from django.db.models.functions import Now

from ..formatting import counted, get_logger
from ..models import Job
from ..models.job import Status
from ..postgres.timeout import TimeLimitReached, time_limit
from ._arguments import job_id, of_one_database, unknown
from ._job_filters import LIVE_SHELF, Filters, add_filters, check_names, filters_of
from ._output import print_json
from ._parser import INTERRUPTED

logger = get_logger(__name__)


CHUNK = 500  # jobs in one transaction
PATIENCE = 30.0  # seconds that the count may take


@dataclass(frozen=True, slots=True)
class Bounded:
    """The jobs of a queryset at one moment, and how many they were in each state."""

    jobs: QuerySet[Job]
    counts: dict[str, int]

    @property
    def count(self) -> int:
        """How many jobs they were."""
        return sum(self.counts.values())


@dataclass(slots=True)
class Done:
    """How far a change has come."""

    matched: int
    """How many jobs are meant."""
    tried: int = 0
    changed: int = 0
    is_finished: bool = False

    @property
    def left_alone(self) -> int:
        """How many jobs were tried and did not change."""
        return max(0, self.tried - self.changed)


def bounded(jobs: QuerySet[Job]) -> Bounded:
    """Count the jobs exactly, and bound them to those of now. Raise ``TimeLimitReached``."""
    alias = jobs.db
    with time_limit(alias, PATIENCE):
        newest = jobs.order_by("-pk").values_list("pk", Now()).first()
        if newest is None:
            return Bounded(jobs.none(), {})
        last, now = newest
        is_meant = Q(shelf=LIVE_SHELF) | Q(finished_at__lte=now)
        meant = jobs.filter(is_meant, pk__lte=last)
        counts = meant.order_by("status").values_list("status").annotate(number=Count("pk"))
        return Bounded(meant, dict(counts))


def change_jobs(run: Callable[[Any], int], meant: Bounded) -> Iterator[Done]:
    """Run a change on the jobs, a chunk after the other. Yield after each chunk.

    Race: a job changes its state after it was counted, or while a chunk waits for its row. Each chunk applies
    the conditions again to the rows that it has locked, so such a job does not change.
    """
    done, last = Done(meant.count), 0
    while True:
        with transaction.atomic(using=meant.jobs.db):
            rows = meant.jobs.filter(pk__gt=last).order_by("pk")
            ids = list(rows.values_list("pk", flat=True)[:CHUNK])
            if not ids:
                break
            done.changed += run(meant.jobs.filter(pk__in=ids).order_by("pk").select_for_update())
        done.tried += len(ids)
        last = ids[-1]
        yield done
    # Those that had left their state before their chunk came were tried, too.
    done.tried, done.is_finished = max(done.tried, meant.count), True
    yield done


def change_each(run: Callable[[Any], int], seen: Sequence[Job]) -> Iterator[tuple[Job, bool]]:
    """Run a change on single jobs. Yield each of them, and whether it changed.

    Race: a job that waits may be done when its turn comes, and must not run a second time. So a job changes
    only if it is as it was seen: not finished, or finished in the same way.
    """
    for job in seen:
        alias = job._state.db
        is_same = Q(shelf__gt=LIVE_SHELF, status=job.status) if job.is_finished else Q(shelf=LIVE_SHELF)
        with transaction.atomic(using=alias):
            has_changed = bool(run(Job.objects.using(alias).filter(is_same, pk=job.pk).select_for_update()))
        yield job, has_changed


class Interruption:
    """Whether Ctrl-C was pressed."""

    is_asked = False


@contextmanager
def interruptible() -> Iterator[Interruption]:
    """Let the first Ctrl-C set a flag, so that the current chunk ends. The second one interrupts."""
    asked = Interruption()
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return

    def ask(*_: object) -> None:
        asked.is_asked = True
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, before)


# ----------------------------------------------------------------------------
# What ``retry``, ``cancel`` and ``run-now`` say before, meanwhile and afterwards.


class Report:
    """The words and the values about one change of ``matched`` jobs."""

    def __init__(
        self, change: Change, alias: str, matched: int, options: dict[str, Any], stdout: OutputWrapper
    ) -> None:
        self._change = change
        self._alias = alias
        self._matched = matched
        self._options = options
        self._stdout = stdout
        self._is_shown = False
        self.is_stopped = False
        """Whether Ctrl-C has ended it before the last job."""
        self.unchanged: Sequence[int] = ()
        """The ids that were given, and did not change."""

    def would(self, counts: dict[str, int]) -> str:
        """Return how many jobs are meant, and in which states they are."""
        states = ", ".join(f"{number} {status}" for status, number in counts.items())
        which = f" ({states})" if len(counts) > 1 else ""
        one, many = self._change.would
        jobs = counted(self._matched, f"{states.partition(' ')[2]} job" if len(counts) == 1 else "job")
        return f"{jobs}{which} {one if self._matched == 1 else many}."

    def show(self, done: Done) -> None:
        """Show how far it is, on a terminal."""
        if sys.stderr.isatty() and not (self._options.get("quiet") or self._options.get("json")):
            self._is_shown = True
            sys.stderr.write(f"\r{done.tried:,} of {done.matched:,} jobs ")
            sys.stderr.flush()

    def end(self, changed: int, tried: int, counts: dict[str, int] | None = None) -> None:
        """Print the outcome. Raise ``CommandError`` if Ctrl-C has ended it before its end."""
        if self._is_shown:
            sys.stderr.write("\r\033[K")
        is_dry = bool(self._options.get("dry_run"))
        if self._options.get("json"):
            document = {
                "database": self._alias,
                "action": self._change.name,
                "dry_run": is_dry,
                "matched": self._matched,
                "changed": changed,
                "left_alone": max(0, tried - changed),
                "unchanged": list(self.unchanged),
                "stopped": self.is_stopped,
            }
            print_json(self._stdout, document)
        elif not self._options.get("quiet"):
            self._stdout.write(self._sentence(changed, tried, counts or {}, is_dry))
        if self.is_stopped:
            raise CommandError(
                f"Stopped. {counted(changed, 'job')} of {self._matched} changed; the others did not.",
                returncode=INTERRUPTED,
            )

    def _sentence(self, changed: int, tried: int, counts: dict[str, int], is_dry: bool) -> str:
        if not self._matched:
            return "No job matches. Nothing has changed."
        if is_dry:
            return f"{self.would(counts)} Nothing has changed."
        one, many = self._change.does
        text = f"{counted(changed, 'job')} {one if changed == 1 else many}."
        left = max(0, tried - changed)
        if left and not self.unchanged:
            was, they = ("was", "it was") if left == 1 else ("were", "they were")
            text += (
                f" {counted(left, 'job')} {was} left alone: {they} in another state by then"
                f"{self._change.or_else}."
            )
        return text


def ask(question: str, options: dict[str, Any]) -> None:
    """Ask whether to go on. Raise ``CommandError`` if not, and ``ArgumentTypeError`` if nobody can answer.

    The question is printed to standard error: standard output may be read by a program.
    """
    if options.get("yes"):
        return
    if not sys.stdin.isatty():
        raise ArgumentTypeError(f"{question} Nobody can be asked here: add --yes to do it.")
    sys.stderr.write(f"{question} Continue? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CommandError("Nothing has changed.")


# ----------------------------------------------------------------------------
# ``retry``, ``cancel`` and ``run-now``: the same arguments and the same way for each of them.


@dataclass(frozen=True, slots=True)
class Change:
    """One of the changes."""

    name: str
    run: Callable[[Any], int]
    """Takes a queryset, and returns how many jobs it has changed."""
    usual: tuple[Status, ...]
    """The states that are chosen without ``--status``."""
    possible: tuple[Status, ...]
    """The states in which a job can change."""
    would: tuple[str, str]
    """What would happen to one job, and to several."""
    does: tuple[str, str]
    """What happens to them now."""
    rule: str
    """Which jobs can change, in a sentence."""
    or_else: str = ""
    """Another reason why a job of the right state does not change."""
    where: Q = field(default_factory=Q)
    """A condition besides the state."""


def add_arguments(parser: ArgumentParser, change: Change) -> None:
    """Add which jobs, and how to ask."""
    parser.add_argument("job", type=job_id, nargs="*", metavar="ID", help="ids, such as 5 or other:5")
    add_filters(parser, status=f"default: {','.join(change.usual)}")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument("--dry-run", action="store_true", help="tell how many jobs it would be, and end")
    parser.add_argument("--json", action="store_true", help="print the outcome as JSON")
    parser.add_argument("--quiet", action="store_true", help="print nothing but questions and errors")


def run(change: Change, options: dict[str, Any], stdout: OutputWrapper) -> None:
    """Change the jobs with these ids, or those that the options choose."""
    alias = options["database"]
    if not options.get("job"):
        _change_chosen(change, alias, options, stdout)
        return
    alias, ids = of_one_database(options["job"], alias)
    if filters_of(options, alias).are_given:
        raise ArgumentTypeError("Give either ids or options that choose jobs, not both.")
    _change_ids(change, ids, alias, options, stdout)


def _change_ids(
    change: Change, ids: list[int], alias: str, options: dict[str, Any], stdout: OutputWrapper
) -> None:
    found = Job.objects.using(alias).only("pk", "shelf", "status", "finished_at").in_bulk(ids)
    if missing := [pk for pk in ids if pk not in found]:
        raise CommandError(unknown(missing, alias))
    jobs = [found[pk] for pk in ids]
    report = Report(change, alias, len(jobs), options, stdout)
    if options.get("dry_run"):
        report.end(0, 0, _by_status(jobs))
        return
    if change.name == "retry" and (done := [job for job in jobs if job.status == Status.DONE]):
        # Nobody should run a done job a second time by accident.
        ask(f"{_named(done)} done and would run a second time.", options)
    changed, unchanged = 0, []
    with interruptible() as interruption:
        for job, has_changed in change_each(change.run, jobs):
            changed += has_changed
            if not has_changed:
                unchanged.append(job)
            if interruption.is_asked:
                break
    tried = changed + len(unchanged)
    report.is_stopped = tried < len(jobs)
    report.unchanged = [job.pk for job in unchanged]
    report.end(changed, tried)
    if unchanged:
        rows = Job.objects.using(alias).filter(pk__in=report.unchanged)
        now = dict(rows.values_list("pk", "status"))
        states = ", ".join(f"{pk} ({now.get(pk, 'gone')})" for pk in report.unchanged)
        raise CommandError(f"Not changed: {states}. {change.rule}")


def _change_chosen(change: Change, alias: str, options: dict[str, Any], stdout: OutputWrapper) -> None:
    filters = filters_of(options, alias)
    if not filters.are_given:
        raise ArgumentTypeError("Say which jobs: their ids, or options such as --task, --queue and --status.")
    meant = _bounded(change, _with_states(change, filters), alias)
    report = Report(change, alias, meant.count, options, stdout)
    if not meant.count:
        check_names(filters, alias)
    if not meant.count or options.get("dry_run"):
        report.end(0, 0, meant.counts)
        return
    ask(report.would(meant.counts), options)
    done = Done(meant.count)
    with interruptible() as interruption:
        for done in change_jobs(change.run, meant):
            report.show(done)
            if interruption.is_asked and not done.is_finished:
                report.is_stopped = True
                break
    logger.info("%s by command: %d of %d jobs changed", change.name, done.changed, done.matched)
    report.end(done.changed, done.tried)


def _with_states(change: Change, filters: Filters) -> Filters:
    """Return the filters with the states that are meant."""
    if wrong := [state for state in filters.status if state not in change.possible]:
        raise ArgumentTypeError(f"--status {wrong[0]}: such jobs cannot change. {change.rule}")
    if filters.worker is not None and Status.RUNNING not in change.possible:
        raise ArgumentTypeError(f"--worker chooses jobs that run now. {change.rule}")
    if filters.status or filters.worker is not None:
        return filters
    usual = tuple(state for state in change.usual if not (filters.key and state.is_terminal))
    if not usual:
        raise ArgumentTypeError("--key finds jobs that are not finished. Add --status retry.")
    return replace(filters, status=usual)


def _bounded(change: Change, filters: Filters, alias: str) -> Bounded:
    try:
        return bounded(filters.jobs(alias).filter(change.where))
    except TimeLimitReached as error:
        raise CommandError(
            f"The jobs could not be counted within {PATIENCE:g} s. Choose fewer: add --queue, "
            "--since, --batch or --key."
        ) from error


def _by_status(jobs: list[Job]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for job in jobs:
        counts[job.status] = counts.get(job.status, 0) + 1
    return counts


def _named(jobs: list[Job]) -> str:
    names = ", ".join(str(job.pk) for job in jobs[:5])
    more = f" and {len(jobs) - 5} more" if len(jobs) > 5 else ""
    return f"Job {names} is" if len(jobs) == 1 else f"Jobs {names}{more} are"
