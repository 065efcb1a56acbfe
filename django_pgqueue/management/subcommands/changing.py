"""``manage.py pgqueue retry``, ``cancel`` and ``run-now``: count jobs, ask, and go through them in chunks.

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
from argparse import ArgumentTypeError
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from django.core.management.base import CommandError
from django.db import transaction
from django.db.models import Count, Q, QuerySet
from django.db.models.functions import Now

from ...formatting import counted, get_logger
from ...jobs.chunks import Chunk, walk
from ...models import Job
from ...models.changes import cancel, retry, run_now
from ...models.job import Status
from ...postgres.timeout import TimeLimitReached, time_limit
from .._arguments import job_id, of_one_database
from .._job_filters import LIVE_SHELF, Filters, add_filters, check_names, filters_of, with_ids
from .._output import Output
from .._parser import INTERRUPTED, argument, subcommand

logger = get_logger(__name__)

PATIENCE = 30.0  # seconds that the count may take


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One of the changes."""

    name: str
    help: str
    run: Callable[[Any], int]
    """Takes a queryset, and returns how many jobs it has changed."""
    usual: tuple[Status, ...]
    """The states that are chosen without ``--status``."""
    possible: tuple[Status, ...]
    """The states in which a job can change."""
    where: Q = field(default_factory=Q)
    """A condition besides the state."""
    would: str
    """What would happen to the jobs."""
    does: tuple[str, str]
    """What happens to one job now, and to several."""
    rule: str
    """Which jobs can change, in a sentence."""
    or_else: str = ""
    """Another reason why a job of the right state does not change."""


_WAITING = (Status.PENDING, Status.RETRY)
_LIVE = (*_WAITING, Status.BLOCKED, Status.RUNNING)

CHANGES = [
    Change(
        name="retry",
        help="Run jobs again, now, with a new budget of attempts",
        run=partial(retry, done=True),  # the command asks before it runs a done job again
        usual=(Status.FAILED,),
        possible=(Status.FAILED, Status.CANCELLED, Status.DONE, *_WAITING),
        would="would run again",
        does=("runs again", "run again"),
        rule="Running and blocked jobs cannot be retried, nor a job whose unique key another job has.",
        or_else=", or another job has the same unique key",
    ),
    Change(
        name="cancel",
        help="Cancel jobs: those that wait end at once, and those that run are asked to stop",
        run=cancel,
        usual=_LIVE,
        possible=_LIVE,
        where=Q(cancel_requested_at__isnull=True),
        would="would be cancelled, or asked to stop",
        does=("was cancelled, or asked to stop", "were cancelled, or asked to stop"),
        rule="Finished jobs, and those that were already asked to stop, cannot be cancelled.",
        or_else=" (a job that is cancelled may take along those that wait for it)",
    ),
    Change(
        name="run-now",
        help="Run jobs now that wait for a later time, and change nothing else",
        run=run_now,
        usual=_WAITING,
        possible=_WAITING,
        where=Q(run_after__gt=Now()),
        would="would be due now",
        does=("is due now", "are due now"),
        rule="Only jobs that wait for a later time can be run now.",
    ),
]


@dataclass(slots=True)
class Done:
    """How far a change has come."""

    counts: Mapping[str, int]
    """How many jobs are meant, in each state."""
    tried: int = 0
    changed: int = 0
    unchanged: list[int] = field(default_factory=list)
    """The ids that were given, and did not change."""
    is_stopped: bool = False
    """Whether Ctrl-C has ended it before the last job."""

    @property
    def matched(self) -> int:
        """How many jobs are meant."""
        return sum(self.counts.values())


def run(change: Change, options: dict[str, Any]) -> Output:
    """Change the jobs with these ids, or those that the options choose."""
    alias, ids = of_one_database(options["job"] or (), options["database"])
    filters = filters_of(options, alias)
    if not ids and not filters.are_given:
        raise ArgumentTypeError("Say which jobs: their ids, or options such as --task, --queue and --status.")
    outcome = (
        _change_ids(change, ids, alias, options) if ids else _change_chosen(change, filters, alias, options)
    )
    document = {
        "database": alias,
        "action": change.name,
        "dry_run": options["dry_run"],
        "matched": outcome.matched,
        "changed": outcome.changed,
        "left_alone": max(0, outcome.tried - outcome.changed),
        "unchanged": outcome.unchanged,
        "stopped": outcome.is_stopped,
    }
    error, code = "", 1
    if outcome.is_stopped:
        done = f"{counted(outcome.changed, 'job')} of {outcome.matched} changed"
        error, code = f"Stopped. {done}; the others did not.", INTERRUPTED
    elif outcome.unchanged:
        rows = Job.objects.using(alias).filter(pk__in=outcome.unchanged)
        now = dict(rows.values_list("pk", "status"))
        states = ", ".join(f"{pk} ({now.get(pk, 'gone')})" for pk in outcome.unchanged)
        error = f"Not changed: {states}. {change.rule}"
    text = () if options["quiet"] else [_sentence(change, outcome, is_dry=options["dry_run"])]
    return Output(text, document, error, code)


def _change_ids(change: Change, ids: list[int], alias: str, options: dict[str, Any]) -> Done:
    jobs = with_ids(Job.objects.using(alias).only("pk", "shelf", "status", "finished_at"), ids)
    outcome = Done(Counter(job.status for job in jobs))
    if options["dry_run"]:
        return outcome
    if change.name == "retry" and (done := [str(job.pk) for job in jobs if job.status == Status.DONE]):
        # Nobody should run a done job a second time by accident.
        more = f" and {len(done) - 5} more" if len(done) > 5 else ""
        named = f"Jobs {', '.join(done[:5])}{more} are" if len(done) > 1 else f"Job {done[0]} is"
        _ask(f"{named} done and would run a second time.", options)
    with interruptible() as asked:
        for job, has_changed in change_each(change.run, jobs):
            outcome.tried += 1
            outcome.changed += has_changed
            if not has_changed:
                outcome.unchanged.append(job.pk)
            if asked.is_set():
                break
    outcome.is_stopped = outcome.tried < len(jobs)
    return outcome


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


def _change_chosen(change: Change, filters: Filters, alias: str, options: dict[str, Any]) -> Done:
    jobs, counts = _bounded(_with_states(change, filters).jobs(alias).filter(change.where))
    outcome = Done(counts)
    if not outcome.matched:
        check_names(filters, alias)
    elif not options["dry_run"]:
        _ask(_would(change, outcome), options)
        _walk(change, jobs, outcome, is_shown=not (options["quiet"] or options["json"]))
    return outcome


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


def _bounded(jobs: QuerySet[Job]) -> tuple[QuerySet[Job], dict[str, int]]:
    """Bound the jobs to those of now, and count them exactly in each state."""
    try:
        with time_limit(jobs.db, PATIENCE):
            newest = jobs.order_by("-pk").values_list("pk", Now()).first()
            if newest is None:
                return jobs.none(), {}
            last, now = newest
            meant = jobs.filter(Q(shelf=LIVE_SHELF) | Q(finished_at__lte=now), pk__lte=last)
            counts = meant.order_by("status").values_list("status").annotate(number=Count("pk"))
            return meant, dict(counts)
    except TimeLimitReached as error:
        raise CommandError(
            f"The jobs could not be counted within {PATIENCE:g} s. Choose fewer: add --queue, "
            "--since, --batch or --key."
        ) from error


def _walk(change: Change, jobs: QuerySet[Job], outcome: Done, *, is_shown: bool) -> None:
    is_shown = is_shown and sys.stderr.isatty()

    def commit(_number: int, take: Callable[[], Chunk | None]) -> Chunk | None:
        with transaction.atomic(using=jobs.db):
            return take()

    with interruptible() as asked:
        for chunk in walk([jobs], change.run, commit):
            outcome.tried += chunk.found
            outcome.changed += chunk.changed
            if is_shown:
                sys.stderr.write(f"\r{outcome.tried:,} of {outcome.matched:,} jobs ")
                sys.stderr.flush()
            if asked.is_set():
                outcome.is_stopped = True
                break
        else:
            # Those that had left their state before their chunk came were tried, too.
            outcome.tried = max(outcome.tried, outcome.matched)
    if is_shown:
        sys.stderr.write("\r\033[K")
    logger.info("%s by command: %d of %d jobs changed", change.name, outcome.changed, outcome.matched)


@contextmanager
def interruptible() -> Iterator[threading.Event]:
    """Let the first Ctrl-C set an event, so that the current chunk ends. The second one interrupts."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return

    def ask(*_: object) -> None:
        asked.set()
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, before)


# ----------------------------------------------------------------------------
# What the commands say before and afterwards.


def _ask(question: str, options: dict[str, Any]) -> None:
    """Ask whether to go on. Raise ``CommandError`` if not, and ``ArgumentTypeError`` if nobody can answer.

    The question is printed to standard error: standard output may be read by a program.
    """
    if options["yes"]:
        return
    if not sys.stdin.isatty():
        raise ArgumentTypeError(f"{question} Nobody can be asked here: add --yes to do it.")
    sys.stderr.write(f"{question} Continue? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CommandError("Nothing has changed.")


def _would(change: Change, outcome: Done) -> str:
    """Return how many jobs are meant, and in which states they are."""
    if len(outcome.counts) == 1:
        [status] = outcome.counts
        return f"{counted(outcome.matched, f'{status} job')} {change.would}."
    states = ", ".join(f"{number} {status}" for status, number in outcome.counts.items())
    return f"{counted(outcome.matched, 'job')} ({states}) {change.would}."


def _sentence(change: Change, outcome: Done, *, is_dry: bool) -> str:
    if not outcome.matched:
        return "No job matches. Nothing has changed."
    if is_dry:
        return f"{_would(change, outcome)} Nothing has changed."
    text = f"{counted(outcome.changed, 'job')} {change.does[outcome.changed != 1]}."
    left = outcome.tried - outcome.changed
    if left > 0 and not outcome.unchanged:
        was, they = ("was", "it was") if left == 1 else ("were", "they were")
        text += f" {counted(left, 'job')} {was} left alone: {they} in another state by then{change.or_else}."
    return text


for _change in CHANGES:
    subcommand(
        _change.name,
        _change.help,
        argument("job", type=job_id, nargs="*", metavar="ID", help="ids, such as 5 or other:5"),
        partial(add_filters, status=f"default: {','.join(_change.usual)}"),
        argument("--yes", action="store_true", help="do not ask"),
        argument("--dry-run", action="store_true", help="tell how many jobs it would be, and end"),
        argument("--quiet", action="store_true", help="print nothing but questions and errors"),
    )(partial(run, _change))
