"""``retry``, ``cancel`` and ``run-now``: the same arguments and the same way for each of them."""

from __future__ import annotations

import logging
from argparse import ArgumentTypeError
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from django.core.management.base import CommandError
from django.db.models import Q

from ..models import Job
from ..models.job import Status
from ..time_limit import TimeLimitReached
from . import _changing
from ._change_report import Report, ask
from ._ids import job_id, of_one_database, unknown
from ._job_filters import Filters, add_filters, check_names, filters_of

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from django.core.management.base import OutputWrapper

__all__ = ["Change", "add_arguments", "run"]

logger = logging.getLogger(__name__)


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
        raise ArgumentTypeError(unknown(missing, alias))
    jobs = [found[pk] for pk in ids]
    report = Report(change, alias, len(jobs), options, stdout)
    if options.get("dry_run"):
        report.end(0, 0, _by_status(jobs))
        return
    if change.name == "retry" and (done := [job for job in jobs if job.status == Status.DONE]):
        # Nobody should run a done job a second time by accident.
        ask(f"{_named(done)} done and would run a second time.", options)
    changed, unchanged = 0, []
    with _changing.interruptible() as interruption:
        for job, has_changed in _changing.change_each(change.run, jobs):
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
    done = _changing.Done(meant.count)
    with _changing.interruptible() as interruption:
        for done in _changing.change(change.run, meant):
            report.show(done)
            if interruption.is_asked and not done.is_over:
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
        raise ArgumentTypeError("--key finds jobs that are not over. Add --status retry.")
    return replace(filters, status=usual)


def _bounded(change: Change, filters: Filters, alias: str) -> _changing.Bounded:
    try:
        return _changing.bounded(filters.jobs(alias).filter(change.where))
    except TimeLimitReached as error:
        raise CommandError(
            f"The jobs could not be counted within {_changing.PATIENCE:g} s. Choose fewer: add --queue, "
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
