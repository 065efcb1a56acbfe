"""``manage.py pgqueue run-here``: run one waiting job in this process, for a debugger."""

from __future__ import annotations

import json
import pdb
from argparse import ArgumentParser
from traceback import format_exception
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError, OutputWrapper
from django.utils import translation

from ...formatting import plain
from ...redaction import redact, redact_text
from ...worker.one_process import run_job
from .._arguments import job_id
from .._output import plain_lines
from .._parser import INTERRUPTED

NAME = "run-here"
HELP = "Run one waiting job here and now, so that a debugger can follow it"


def add_arguments(parser: ArgumentParser) -> None:
    """Add which job, and whether to debug its exception."""
    parser.add_argument("job", type=job_id, metavar="ID", help="the id of the job, such as 5 or other:5")
    parser.add_argument("--pdb", action="store_true", help="if the task raises, start pdb where it did")


def run(options: dict[str, Any], stdout: OutputWrapper) -> None:
    """Run it, and show what came of it."""
    alias, pk = options["job"]
    with translation.override(settings.LANGUAGE_CODE):  # as in a worker; the output is in English
        result = run_job(pk, alias or options["database"])
    row, outcome, failure = result.row, result.outcome, result.failure
    if failure is not None:
        trace = redact_text("".join(format_exception(failure.error)), row.task_path)
        stdout.write("\n".join(plain_lines(trace)))
    what = f"Job {row.id} ({row.task_path}), attempt {row.attempts}"
    if outcome.kind == "done":
        shown = json.dumps(redact(json.loads(outcome.result or "null"), row.task_path), ensure_ascii=False)
        stdout.write(plain(f"{what}: done in {result.ran:.3f} s. Result: {shown}"))
        return
    if failure is not None and options["pdb"]:
        pdb.post_mortem(failure.error.__traceback__)
    then = {"retry": "it will be tried again", "release": "it waits again"}.get(outcome.kind, outcome.kind)
    reason = redact_text(outcome.reason or "", row.task_path)
    is_cut_short = failure is not None and isinstance(failure.error, KeyboardInterrupt)
    raise CommandError(
        plain(f"{what}: {then}{f' ({reason})' if reason else ''}."),
        returncode=INTERRUPTED if is_cut_short else 1,
    )
