"""``manage.py pgqueue jobs``: list jobs, or show everything about some of them."""

from __future__ import annotations

from argparse import ArgumentTypeError
from typing import TYPE_CHECKING, Any

from django.core.management.base import CommandError
from django.db.models.functions import Now

from ...models import Job
from ...postgres.timeout import TimeLimitReached, time_limit
from .. import _jobs
from .._arguments import at_least, job_id, of_one_database, unknown
from .._job_filters import add_filters, check_names, filters_of
from .._output import marks_for, print_json, width_of

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from django.core.management.base import OutputWrapper

NAME = "jobs"
HELP = "List jobs, newest first, or show everything about the jobs with these ids"

PATIENCE = 5.0  # seconds that one statement may take
MOST = 1000  # jobs in one list


def add_arguments(parser: ArgumentParser) -> None:
    """Add which jobs, how many, and the format."""
    parser.add_argument("job", type=job_id, nargs="*", metavar="ID", help="ids, such as 5 or other:5")
    add_filters(parser, status="default: all")
    parser.add_argument(
        "--limit",
        type=at_least(1),
        default=50,
        metavar="N",
        help=f"at most N jobs, up to {MOST} (default: 50)",
    )
    parser.add_argument(
        "--after", type=at_least(1), metavar="ID", help="go on after this id, the last of the list before"
    )
    parser.add_argument("--json", action="store_true", help="print the jobs as JSON")
    parser.add_argument("--quiet", action="store_true", help="print only the ids, one in a line")


def run(options: dict[str, Any], stdout: OutputWrapper) -> None:
    """Print the list, or the _jobs."""
    if options.get("json") and options.get("quiet"):
        raise ArgumentTypeError("--json and --quiet cannot be used together.")
    try:
        if options.get("job"):
            _show(options, stdout)
        else:
            _list(options, stdout)
    except TimeLimitReached as error:
        raise CommandError(
            f"The database did not answer within {PATIENCE:g} s. Choose fewer jobs: add --status, --queue, "
            "--batch, --key or --worker."
        ) from error


def _show(options: dict[str, Any], stdout: OutputWrapper) -> None:
    alias, ids = of_one_database(options["job"], options["database"])
    if filters_of(options, alias).are_given or options.get("after"):
        raise ArgumentTypeError("Give either ids or options that choose jobs, not both.")
    with time_limit(alias, PATIENCE):
        listed = Job.objects.using(alias).select_related("live_progress")
        found = listed.annotate(now=Now()).in_bulk(ids)
        if missing := [pk for pk in ids if pk not in found]:
            raise CommandError(unknown(missing, alias))
        jobs = [found[pk] for pk in ids]
        workers = _jobs.worker_names(alias, jobs)
        if options.get("json"):
            shown: Any = [_jobs.job_as_json(job, workers) for job in jobs]
        else:
            width, marks = width_of(stdout), marks_for(stdout)
            shown = [_jobs.text(job, workers, width, marks) for job in jobs]
    if options.get("json"):
        print_json(stdout, {"database": alias, "jobs": shown, "next": None})
    elif options.get("quiet"):
        stdout.write("\n".join(map(str, ids)))
    else:
        stdout.write("\n\n".join(shown))


def _list(options: dict[str, Any], stdout: OutputWrapper) -> None:
    alias = options["database"]
    filters = filters_of(options, alias)
    limit = min(MOST, options.get("limit") or 50)
    chosen = filters.jobs(alias)
    if options.get("after"):
        chosen = chosen.filter(pk__lt=options["after"])
    with time_limit(alias, PATIENCE):
        jobs = list(_jobs.readable(chosen).order_by("-pk")[: limit + 1])
        jobs, more = jobs[:limit], len(jobs) > limit
        workers = _jobs.worker_names(alias, jobs)
        if not jobs:
            check_names(filters, alias)
    if options.get("json"):
        shown = [_jobs.row_as_json(job, workers) for job in jobs]
        print_json(stdout, {"database": alias, "jobs": shown, "next": jobs[-1].pk if more else None})
    elif options.get("quiet"):
        stdout.write("".join(f"{job.pk}\n" for job in jobs), ending="")
    elif not jobs:
        stdout.write("There is no such job." if filters.are_given else "There is no job.")
    else:
        stdout.write(_jobs.listing(jobs, workers, width_of(stdout), marks_for(stdout)))
        if more:
            stdout.write(f"\nThere are more: --after {jobs[-1].pk}")
