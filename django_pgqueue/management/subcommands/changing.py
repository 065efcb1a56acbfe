"""``manage.py pgqueue retry``, ``cancel`` and ``run-now``: count jobs, ask, and go through them in chunks.

The command takes the jobs that are in the chosen states when it counts them. A job that gets there later
is left alone: it has a higher id, or it ended after the count. Otherwise a job that fails again at once would
be retried again and again.

Each chunk is one transaction that is committed before the next one begins, so no lock is held for long, and
what has been done stays done if a user presses Ctrl-C.
"""

from __future__ import annotations

import signal
import sys
import threading
from argparse import ArgumentTypeError
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import chain
from types import SimpleNamespace
from typing import Any, TypeAlias

from django.core.management.base import CommandError
from django.db import transaction
from django.db.models import Count, Q, QuerySet
from django.db.models.functions import Now

from ...formatting import counted, get_logger
from ...jobs.chunks import Chunk, walk
from ...models import Job
from ...models.changes import cancel, retry, run_now
from ...models.job import Status
from ...postgres.ask import ask_all
from ...postgres.timeout import TimeLimitReached, time_limit
from ...tasks.links import public_id
from .._arguments import by_database
from .._conditions import check_database
from .._job_filters import LIVE_SHELF, Filters, add_filters, check_names, filters_of, with_ids
from .._output import No, Output
from .._parser import INTERRUPTED, argument, subcommand

logger = get_logger(__name__)

PATIENCE = 30.0  # seconds that the count may take


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One of the changes."""

    name: str
    help: str
    run: Callable[[Any], int]  # takes a queryset, and returns how many jobs it has changed
    usual: tuple[Status, ...]  # the states that are chosen without ``--status``
    possible: tuple[Status, ...]  # the states in which a job can change
    where: Q = field(default_factory=Q)  # a condition besides the state
    would: str  # what would happen to the jobs
    does: tuple[str, str]  # what happens to one job now, and to several
    rule: str  # which jobs can change, in a sentence
    or_else: str = ""  # another reason why a job of the right state does not change


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
        help="Cancel jobs: waiting ones end at once, and running ones are asked to stop",
        run=cancel,
        usual=_LIVE,
        possible=_LIVE,
        where=Q(cancel_requested_at__isnull=True),
        would="would be cancelled, or asked to stop",
        does=("was cancelled, or asked to stop", "were cancelled, or asked to stop"),
        rule="Finished jobs, and jobs that were already asked to stop, cannot be cancelled.",
        or_else=" (a job that is cancelled may take along the jobs that wait for it)",
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
    """What a change has done."""

    matched: int  # how many jobs are meant
    changed: int = 0
    left_alone: int = 0  # how many jobs were tried and did not change
    unchanged: list[tuple[str, int]] = field(default_factory=list)
    """The ids that were given, and did not change."""
    stopped: bool = False  # whether Ctrl-C has ended it before the last job


Steps: TypeAlias = Iterator[tuple[int, int, list[tuple[str, int]]]]
"""How many jobs were tried, how many changed, and the ids that were given and did not change."""


def run(change: Change, options: dict[str, Any]) -> Output:
    """Change the jobs with these ids, or the ones that the options choose, in each database that has some."""
    ids, is_dry = by_database(options["job"] or (), options["database"]), options["dry_run"]
    aliases, missing = [*ids] or options["shards"], ""
    if len(aliases) > 1:
        answers = ask_all(aliases, check_database)
        aliases, missing = [*answers.given], str(answers)
    plans = {alias: _plan(change, ids.get(alias, []), options, alias) for alias in aliases}
    counts = sum((plan.counts for plan in plans.values()), Counter[str]())
    done = Done(counts.total())
    if done.matched and not is_dry:
        questions = [plan.question for plan in plans.values() if plan.question]
        if (questions or not ids) and not options["yes"]:
            _ask(" ".join(questions) if ids else _would(change, counts))
        steps = chain.from_iterable(plan.steps for plan in plans.values())
        _go(steps, done, is_shown=sys.stderr.isatty() and not (options["quiet"] or options["json"]))
        logger.info("%s by command: %d of %d jobs changed", change.name, done.changed, done.matched)
    error, code = "", 1
    if done.stopped:
        error = f"Stopped. {counted(done.changed, 'job')} of {done.matched} changed; the others did not."
        code = INTERRUPTED
    elif done.unchanged:
        error = f"Not changed: {', '.join(map(_state_of, done.unchanged))}. {change.rule}"
    is_unchanged = is_dry or not done.matched
    text = f"{_would(change, counts)} Nothing has changed." if is_unchanged else _sentence(change, done)
    names = {"database": aliases[0]} if len(plans) == 1 and not missing else {"shards": aliases}
    unchanged = [pk if len(plans) == 1 else public_id(pk, alias) for alias, pk in done.unchanged]
    document = {**names, "action": change.name, "dry_run": is_dry, **asdict(done), "unchanged": unchanged}
    error = " ".join(filter(None, (error, missing)))
    return Output(() if options["quiet"] else [text], document, error, code)


def _plan(change: Change, ids: list[int], options: dict[str, Any], alias: str) -> Any:
    """Return how many jobs of a database are in each state (``counts``), what to ask before if their ids are
    given (``question``), and the ``steps`` that change them.
    """
    filters = filters_of(options, alias)
    if ids:
        return _by_ids(change, ids, alias)
    if filters == Filters():
        raise ArgumentTypeError("Say which jobs: their ids, or options such as --task, --queue and --status.")
    return _by_filters(change, filters, alias)


def _state_of(job: tuple[str, int]) -> str:
    """Return a job that did not change, and its state now."""
    alias, pk = job
    status = Job.objects.using(alias).filter(pk=pk).values_list("status", flat=True).first()
    return f"{public_id(pk, alias)} ({status or 'gone'})"


def _by_ids(change: Change, ids: list[int], alias: str) -> Any:
    jobs = with_ids(Job.objects.using(alias).only("pk", "shelf", "status", "finished_at"), ids)
    question = ""
    if change.name == "retry" and (done := [str(job.pk) for job in jobs if job.status == Status.DONE]):
        # No user should run a done job a second time by accident.
        more = f" and {len(done) - 5} more" if len(done) > 5 else ""
        named = f"Jobs {', '.join(done[:5])}{more} are" if len(done) > 1 else f"Job {done[0]} is"
        question = f"{named} done and would run a second time."
    tried = change_each(change.run, jobs)
    steps = ((1, changed, [] if changed else [(alias, job.pk)]) for job, changed in tried)
    return SimpleNamespace(counts=Counter(job.status for job in jobs), question=question, steps=steps)


def change_each(run: Callable[[Any], int], seen: Sequence[Job]) -> Iterator[tuple[Job, bool]]:
    """Run a change on single jobs. Yield each of them, and whether it changed.

    Race: a job that waits may be done when its turn comes, and must not run a second time, so a job changes
    only if it is as it was seen: not finished, or finished in the same way.
    """
    for job in seen:
        alias = job._state.db
        is_same = Q(shelf__gt=LIVE_SHELF, status=job.status) if job.is_finished else Q(shelf=LIVE_SHELF)
        with transaction.atomic(using=alias):
            has_changed = bool(run(Job.objects.using(alias).filter(is_same, pk=job.pk).select_for_update()))
        yield job, has_changed


def _by_filters(change: Change, filters: Filters, alias: str) -> Any:
    if wrong := [state for state in filters.status if state not in change.possible]:
        raise ArgumentTypeError(f"--status {wrong[0]}: such jobs cannot change. {change.rule}")
    if filters.worker is not None and Status.RUNNING not in change.possible:
        raise ArgumentTypeError(f"--worker chooses jobs that run now. {change.rule}")
    if not filters.status and filters.worker is None:
        usual = tuple(state for state in change.usual if not (filters.key and state.is_terminal))
        if not usual:
            raise ArgumentTypeError("--key finds jobs that are not finished. Add --status retry.")
        filters = replace(filters, status=usual)
    jobs, counts = _bounded(filters.jobs(alias).filter(change.where))
    if not counts:
        check_names(filters, alias)

    def commit(_number: int, take: Callable[[], Chunk | None]) -> Chunk | None:
        with transaction.atomic(using=alias):
            return take()

    chunks = walk([jobs], change.run, commit)
    steps: Steps = ((chunk.found, chunk.changed, []) for chunk in chunks)
    return SimpleNamespace(counts=Counter(counts), question="", steps=steps)


def _bounded(jobs: QuerySet[Job]) -> tuple[QuerySet[Job], dict[str, int]]:
    """Bound the jobs to the existing ones, and count them exactly in each state."""
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


def _go(steps: Steps, done: Done, *, is_shown: bool) -> None:
    tried = 0
    with interruptible() as asked:
        for found, changed, unchanged in steps:
            tried += found
            done.changed += changed
            done.unchanged += unchanged
            if is_shown:
                sys.stderr.write(f"\r{tried:,} of {done.matched:,} jobs ")
                sys.stderr.flush()
            if asked.is_set() and tried < done.matched:
                done.stopped = True
                break
        else:
            # Jobs that had left their state before their chunk came were tried, too.
            tried = max(tried, done.matched)
    if is_shown:
        sys.stderr.write("\r\033[K")
    done.left_alone = max(0, tried - done.changed)


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


def _ask(question: str) -> None:
    """Ask whether to go on. Raise ``No`` if not, and ``ArgumentTypeError`` if no user can answer.

    The question is printed to standard error: standard output may be read by a program.
    """
    if not sys.stdin.isatty():
        raise ArgumentTypeError(f"{question} No user can be asked here: add --yes to do it.")
    sys.stderr.write(f"{question} Continue? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        sys.stderr.write("Nothing has changed.\n")
        raise No("Nothing has changed.")


def _would(change: Change, counts: dict[str, int]) -> str:
    """Return how many jobs are meant, and in which states they are."""
    if not counts:
        return "No job matches."
    matched = sum(counts.values())
    if len(counts) == 1:
        return f"{counted(matched, f'{next(iter(counts))} job')} {change.would}."
    states = ", ".join(f"{number} {status}" for status, number in counts.items())
    return f"{counted(matched, 'job')} ({states}) {change.would}."


def _sentence(change: Change, done: Done) -> str:
    """Return what has changed."""
    text = f"{counted(done.changed, 'job')} {change.does[done.changed != 1]}."
    if done.left_alone and not done.unchanged:
        was, they = ("was", "it was") if done.left_alone == 1 else ("were", "they were")
        text += f" {counted(done.left_alone, 'job')} {was} left alone: {they} in another state by then"
        text += f"{change.or_else}."
    return text


for _change in CHANGES:
    subcommand(
        _change.name,
        _change.help,
        partial(add_filters, status=f"default: {','.join(_change.usual)}"),
        argument("--yes", action="store_true", help="do not ask"),
        argument("--dry-run", action="store_true", help="print the number of jobs and exit"),
        argument("--quiet", action="store_true", help="print nothing but questions and errors"),
        shards="all",
    )(partial(run, _change))
