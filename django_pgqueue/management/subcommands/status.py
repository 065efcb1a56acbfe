"""``manage.py pgqueue`` and ``manage.py pgqueue status``: is all well, what waits, and what to type next."""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING, Any

from django.core.management.base import CommandError
from django.utils.translation import gettext as _

from ...monitoring.health import PATIENCE, judge, read
from ...monitoring.spans import rates
from ...monitoring.workers import Vital
from ...postgres.timeout import within
from .._figures_texts import depth_json, depth_table, problem_json
from .._output import cells, marks_for, plain, print_json, width_of

if TYPE_CHECKING:
    from argparse import ArgumentParser
    from collections.abc import Iterator

    from django.core.management.base import OutputWrapper

    from ...monitoring.health import State, Verdict

NAME = "status"
HELP = "Show the health, the problems with what helps, the queues, and what to type next (the default)"


def add_arguments(parser: ArgumentParser) -> None:
    """Add the format."""
    parser.add_argument("--json", action="store_true", help="print everything as JSON")


def run(options: dict[str, Any], stdout: OutputWrapper) -> None:
    """Print it, and fail if ``health`` would."""
    alias = options["database"]
    state = read(alias)
    found, ran = judge(state), within(alias, PATIENCE, lambda: rates(alias)) or {}
    if options.get("json"):
        print_json(stdout, _json(state, found, ran))
    else:
        for line in _lines(state, found, ran, stdout):
            stdout.write(line)
    if not found.is_working:
        raise CommandError(plain(found.headline))


def _lines(state: State, found: Verdict, ran: dict[str, float], stdout: OutputWrapper) -> Iterator[str]:
    yield plain(found.headline)
    for problem in found.problems:
        yield plain(f"- {problem}")
        if problem.fix:
            yield plain(f"  {problem.fix}")
    yield ""
    if state.depths and state.crew:
        depths = [(depth, state.crew.serving(name)) for name, depth in state.depths.items()]
        yield depth_table(depths, width_of(stdout), marks_for(stdout), ran)
    elif state.depths is not None:
        yield _("No queue has live jobs.")
    yield ""
    yield _("Next:")
    commands = dict(next_commands(state))
    longest = max(map(cells, commands))
    for command, text in commands.items():
        yield f"  {plain(command)}{' ' * (longest - cells(command))}  {text}"


def _json(state: State, found: Verdict, ran: dict[str, float]) -> dict[str, Any]:
    crew, depths = state.crew, state.depths or {}
    return {
        "database": state.alias,
        "healthy": found.is_working,
        "summary": found.headline,
        "problems": [problem_json(problem) for problem in found.problems],
        "workers": crew.count(Vital.RUNNING) if crew else None,
        "queues": [
            {
                **depth_json(depth, crew.serving(name) if crew else 0),
                "per_second": round(ran.get(name, 0.0), 6),
            }
            for name, depth in depths.items()
        ],
        "next": [{"command": command, "text": text} for command, text in next_commands(state)],
    }


def next_commands(state: State) -> Iterator[tuple[str, str]]:
    """Yield the commands that this state suggests, and what they show."""
    database = "" if state.alias == "default" else f" --database {quote(state.alias)}"
    depths = (state.depths or {}).values()
    suggested = {
        "failures --span 1h": (state.failed[0], _("what has failed, by error")),
        "retry --status failed --since 1h --dry-run": (state.failed[0], _("how many jobs would run again")),
        "pauses": (state.pauses, _("who has paused what, and why")),
        "limits": (any(depth.blocked for depth in depths), _("what runs and waits under each limit")),
        "jobs --status running": (any(depth.running for depth in depths), _("what runs now")),
        "why ID": (any(depth.ready or depth.blocked for depth in depths), _("why a job does not run")),
        "tasks": (not depths, _("the tasks that can be enqueued")),
        "top": (True, _("watch the queue")),
    }
    for command, (is_useful, text) in suggested.items():
        if is_useful:
            yield f"manage.py pgqueue {command}{database}", text
    yield "manage.py pgqueue --help", _("all subcommands")
