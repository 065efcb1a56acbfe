"""``manage.py pgqueue top``: the queue, live in a terminal, drawn by Rich.

A thread looks at the queue, and the main thread draws and listens to the keys, so ``q`` works at once while
the database takes its time, and so does a new size of the window. Shards are looked at side by side. One that
does not answer is named, and has no figures and no rows.
"""

from __future__ import annotations

import os
import re
import select
import signal
import sys
import termios
import threading
import tty
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from django.core.management.base import CommandError
from django.db import Error, connections
from django.utils import timezone, translation

from ...formatting import age, local, number, period, plain, throughput
from ...models import Job
from ...models.job import Status
from ...monitoring.depth import Depth, capped
from ...monitoring.failures import GroupFigures, groups
from ...monitoring.health import Health, QueueState, judge, read as read_state
from ...monitoring.spans import HOUR, rates
from ...monitoring.workers import Vital, queues_text
from ...postgres.ask import Answers, ask_all, reason
from ...postgres.clock import server_now
from ...postgres.timeout import within
from ...tasks.links import public_id
from .._arguments import seconds
from .._output import Block, Output, Table, bar
from .._parser import argument, subcommand
from .figures import DEPTH, SHORT, rate_of_jobs
from .jobs import progress_text, readable

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


SHORTEST = 0.1  # seconds between two looks


@subcommand(
    "top",
    "Watch the queue, with its workers and its failures",
    argument("--interval", type=seconds(SHORTEST), default=2, metavar="DURATION",
             help="between two looks (default: 2 seconds)"),
    argument("--once", action="store_true", help="print everything once as text, and end"),
    has_json=False,
    shards="all",
)  # fmt: skip
def run(options: dict[str, Any]) -> Output:
    """Watch it on a terminal. On a pipe or in a file, print it once."""
    aliases, stdout = options["shards"], options["stdout"]
    if not stdout.isatty() or options["once"]:
        found = look(aliases)
        return Output(_once([*found.given.values()], aliases), error=str(found))
    try:
        from rich.console import Console
    except ImportError as error:
        raise CommandError(
            "This needs Rich. Install it, or the extra `top`. `pgqueue top --once` needs none."
        ) from error
    console = Console(file=stdout._out, highlight=False, no_color=options["no_color"] or None)
    watch(aliases, options["interval"], console)
    return Output()


def _once(looks: Sequence[Look], aliases: Sequence[str]) -> Iterator[Block]:
    if not looks:
        return
    yield from headlines(looks, aliases)
    yield from ("", {label: text for label, text, _ in tiles(looks)})
    for name, order in View(aliases).sorts.items():
        table = PANES[name].table(looks, order, aliases)
        yield from ("", replace(table, rows=[[text for text, _style in row] for row in table.rows]))


PATIENCE = 2.0  # seconds that one statement may take
MOST_RUNNING = 100
MOST_FAILURES = 20

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Look:
    """What one look found. Each part has its own time limit; one that is too slow is left out."""

    state: QueueState
    at: datetime = field(default_factory=timezone.now)  # when: the time of the server, if it answers
    health: Health | None = None
    rates: dict[str, float] = field(default_factory=dict)
    running: list[Any] = field(default_factory=list)  # the jobs that have run longest
    failures: list[GroupFigures] = field(default_factory=list)
    slow: list[str] = field(default_factory=list)  # the parts that took too long

    @property
    def headline(self) -> str:
        """The health."""
        slow = f" Too slow to show: {', '.join(self.slow)}." if self.slow else ""
        return plain(self.health.line if self.health else "") + slow

    @property
    def is_calm(self) -> bool:
        """Whether everything was read, and there is no problem."""
        return self.health is not None and self.health.is_healthy and not self.slow

    @property
    def workers(self) -> list[Any]:
        """The workers, as far as they could be read."""
        return self.state.crew.workers if self.state.crew else []


def look(aliases: Sequence[str]) -> Answers[Look]:
    """Read everything, from several databases side by side. This never raises an error of a database."""
    if len(aliases) > 1:
        return ask_all(aliases, _look)
    (alias,) = aliases
    try:
        return Answers({alias: _look(alias)}, {})
    except Error as error:
        connections[alias].close()  # the next look connects again
        return Answers({}, {alias: reason(error)})


def _look(alias: str) -> Look:
    found = Look(QueueState(alias))
    running = readable(Job.objects.using(alias).filter(shelf=0, status=Status.RUNNING))
    longest = running.order_by("last_attempted_at", "pk")[:MOST_RUNNING]

    def read(name: str, part: Callable[[], T], otherwise: T) -> T:
        if (value := within(alias, PATIENCE, part)) is None:
            found.slow.append(name)
            return otherwise
        return value

    found.at = read("time", lambda: server_now(alias), found.at)
    state = found.state = read_state(alias)
    found.health = judge(state)
    parts = {"queues": state.depths, "workers": state.crew, "minutes": state.minutes}
    found.slow += [name for name, part in parts.items() if part is None]
    found.rates = read("rates", lambda: rates(alias), {})
    found.running = read("running jobs", lambda: list(longest), [])
    found.failures = read("failures", lambda: groups(alias, HOUR, most=MOST_FAILURES), [])
    return found


def headlines(looks: Sequence[Look], aliases: Sequence[str]) -> Iterator[str]:
    """Yield the health of each shard, those with problems first. Healthy shards share a line."""
    if len(aliases) == 1:
        yield from (each.headline for each in looks)
        return
    yield from (f"{each.state.alias}: {each.headline}" for each in looks if not each.is_calm)
    if calm := [each.state.alias for each in looks if each.is_calm]:
        yield f"Healthy: {', '.join(calm)}"


_BAD, _WARNING, _DIM, _BAR = "bold red", "yellow", "dim", "cyan"
_VITAL = {Vital.RUNNING: "green", Vital.DRAINING: _WARNING}


def tiles(looks: Sequence[Look]) -> list[tuple[str, str, str]]:
    """Return the four most important figures, of all shards together, with their names and styles."""
    states = [found.state for found in looks]
    depths = [depth for state in states for depth in (state.depths or {}).values()]
    ages = [depth.oldest_ready for depth in depths if depth.ready and not depth.is_paused]
    slots = sum(state.crew.slots for state in states if state.crew)
    busy = sum(state.crew.busy for state in states if state.crew)
    failed, before = (sum(counts) for counts in zip(*(state.failed for state in states), strict=True))
    ready = capped(sum(depth.ready for depth in depths))
    return [
        ("Ready", f"{ready}, oldest {age(max(ages))}" if ages else ready, ""),
        ("Running", f"{number(busy)} of {number(slots)} slots {_bar(busy, slots)}", ""),
        ("Finished", throughput(sum(state.per_second for state in states)), ""),
        ("Failed", f"{number(failed)} in 1 h, {number(before)} before", _BAD if failed > before else ""),
    ]


def _ago(found: Look, moment: datetime | None) -> str:
    return period(max(timedelta(), found.at - (moment or found.at)))


def _bar(part: float, whole: float) -> str:
    return bar(part / whole if whole else 0.0)


class Pane(NamedTuple):
    """A table. The name of its first column says what it is about."""

    rows: Callable[[Look], Iterable[Any]]
    columns: dict[str, Callable[..., str | tuple[str, str]]]
    """What each column says of a row of a look: a text, or one with its style in the words of Rich."""
    right: range  # the columns that are aligned to the right
    empty: str  # what to say if there are no rows
    sorts: dict[str, Callable[[Look, Any], Any]]
    """How it can be sorted. The first one is the usual order; 0 keeps that of the look."""

    def table(self, given: Sequence[Look], order: str, names: Sequence[str]) -> Table:
        """Return the table of these looks: texts and styles. Of several shards, column two names them."""
        columns, right = {**self.columns}, self.right
        if len(names) > 1:
            first, *others = columns.items()
            columns = dict([first, ("Shard", lambda found, _: found.state.alias), *others])
            right = range(right.start + 1, right.stop + 1)
        pairs = [(found, row) for found in given for row in self.rows(found)]
        pairs.sort(key=lambda pair: self.sorts[order](*pair))
        cells = ([column(*pair) for column in columns.values()] for pair in pairs)
        rows = [[(cell, "") if isinstance(cell, str) else cell for cell in row] for row in cells]
        return Table([*columns], rows, right, self.empty)


def _queues(found: Look) -> list[Depth]:
    waiting = found.state.depths or {}
    return [waiting.get(each) or Depth(each) for each in {*waiting, *found.rates}]


def _serving(found: Look, depth: Depth) -> tuple[str, str]:
    count = found.state.crew.serving(depth.queue_name) if found.state.crew else 0
    return str(count), _BAD if not count and depth.ready and not depth.is_paused else ""


def _worker(found: Look, job: Any) -> tuple[str, str]:
    name = next((str(worker) for worker in found.workers if worker.pk == job.worker), "")
    return (name, "") if name else ("gone", _BAD)


#: In the order of their keys.
PANES = {
    "queues": Pane(
        _queues,
        {
            "Queues": lambda _, depth: depth.queue_name,
            **{head: lambda _, depth, count=count: count(depth) for head, count in DEPTH.items()},
            "Rate": lambda found, depth: rate_of_jobs(found.rates.get(depth.queue_name)),
            "Workers": _serving,
            "": lambda _, depth: ("paused" if depth.is_paused else "", _WARNING),
        },
        range(1, 9),
        "No queue has live jobs.",
        sorts={
            "age": lambda _, depth: (depth.is_paused, -depth.oldest_ready, depth.queue_name),
            "ready": lambda _, depth: (-depth.ready, depth.queue_name),
            "rate": lambda found, depth: (-found.rates.get(depth.queue_name, 0.0), depth.queue_name),
            "name": lambda _, depth: depth.queue_name,
        },
    ),
    "workers": Pane(
        lambda found: found.workers,
        {
            "Workers": lambda _, worker: str(worker),
            "State": lambda _, worker: (worker.vital.value, _VITAL.get(worker.vital, _BAD)),
            "Slots": lambda _, worker: (_bar(worker.busy, worker.slots), _BAR),
            "": lambda _, worker: (
                f"{worker.busy}/{worker.slots}" + (f" ({worker.lost} lost)" if worker.lost else "")
            ),
            "Queues": lambda _, worker: queues_text(worker),
            "Heartbeat": lambda _, worker: f"{period(worker.age)} ago",
            "Version": lambda _, worker: (worker.version, _DIM),
        },
        range(0),
        "No worker is registered.",
        sorts={"name": lambda *_: 0, "busy": lambda _, worker: -worker.busy},
    ),
    "running": Pane(
        lambda found: found.running,
        {
            "Running jobs": lambda _, job: job.task_path,
            "ID": lambda found, job: public_id(job.pk, found.state.alias),
            "Runs for": lambda found, job: _ago(found, job.last_attempted_at),
            "Queue": lambda _, job: job.queue_name,
            "Worker": _worker,
            "Progress": lambda _, job: (
                ("asked to stop", _WARNING) if job.cancel_requested_at else (progress_text(job, 10), _BAR)
            ),
        },
        range(1, 3),
        "No job is running.",
        sorts={
            "longest": lambda found, job: (job.last_attempted_at or found.at, job.pk),
            "newest": lambda found, job: found.at - (job.last_attempted_at or found.at),
            "task": lambda _, job: (job.task_path, job.pk),
        },
    ),
    "failures": Pane(
        lambda found: found.failures,
        {
            "Failures of the last hour": lambda _, group: ": ".join(
                filter(None, (group.name, group.message))
            ),
            "Failed": lambda _, group: (number(group.failed), _BAD if group.failed else ""),
            "Retried": lambda _, group: number(group.retried),
            "Last seen": lambda found, group: f"{_ago(found, group.last_seen)} ago",
            "Task": lambda _, group: ", ".join(group.tasks),
            "Fingerprint": lambda _, group: (group.fingerprint[:SHORT], _DIM),
        },
        range(1, 4),
        "Nothing has failed.",
        sorts={
            "most": lambda _, group: -(group.failed + group.retried),
            "newest": lambda found, group: found.at - group.last_seen,
            "task": lambda _, group: list(group.tasks),
        },
    ),
}


@dataclass(slots=True)
class View:
    """What the user has chosen with the keys."""

    aliases: Sequence[str]
    shard: str = ""  # the only shard that is shown; empty for all
    pane: str = ""  # the only pane that is shown; empty for all
    is_paused: bool = False
    sorts: dict[str, str] = field(
        default_factory=lambda: {name: next(iter(pane.sorts)) for name, pane in PANES.items()}
    )

    def press(self, key: str) -> bool:
        """Change what a key changes. Return whether anything has changed."""
        if key == "p":
            self.is_paused = not self.is_paused
        elif key == "0":
            self.pane = ""
        elif key.isdecimal() and 0 < int(key) <= len(PANES):
            self.pane = [*PANES][int(key) - 1]
        elif key == "s":
            name = self.pane or "queues"
            orders = [*PANES[name].sorts]
            self.sorts[name] = orders[(orders.index(self.sorts[name]) + 1) % len(orders)]
        elif key == "d" and len(self.aliases) > 1:
            each = ["", *self.aliases]
            self.shard = each[(each.index(self.shard) + 1) % len(each)]
        else:
            return False
        return True

    @property
    def help(self) -> str:
        """What the keys do."""
        numbers = "  ".join(f"{place} {name}" for place, name in enumerate(("all", *PANES)))
        pause = "go on" if self.is_paused else "pause"
        shard = f"  d shard: {self.shard or 'all'}" if len(self.aliases) > 1 else ""
        return f"q quit  p {pause}  r now  {numbers}  s sorted by {self.sorts[self.pane or 'queues']}{shard}"

    def shown(self, now: Answers[Look], last: dict[str, Look]) -> tuple[list[str], list[Look], str]:
        """Return the chosen shards, their looks (the last ones if none answers), and who does not answer."""
        names = [self.shard] if self.shard else [*self.aliases]
        failed = Answers[Look]({}, {alias: why for alias, why in now.failed.items() if alias in names})
        known = now.given if any(alias in now.given for alias in names) else last
        return names, [known[alias] for alias in names if alias in known], str(failed)


def shares(rows: dict[str, int], height: int) -> dict[str, int]:
    """Return how many rows each pane may show in ``height`` lines: few rows all, and the others share the
    rest. A pane has a head, an empty line before it, and, unless it shows all rows, a line to say so.
    """
    left = height - 2 * len(rows)
    found: dict[str, int] = {}
    for place, (name, count) in enumerate(sorted(rows.items(), key=lambda item: item[1])):
        fair = max(0, left) // (len(rows) - place)
        found[name] = count if count <= fair else max(0, fair - 1)
        left -= min(count, fair)
    return found


def picture(now: Answers[Look], last: dict[str, Look], view: View, console: Console) -> RenderableType:
    """Return what fits the screen. ``now``: the newest look. ``last``: each shard's newest good one."""
    from rich.columns import Columns
    from rich.console import Group
    from rich.layout import Layout
    from rich.text import Text

    names, looks, unanswered = view.shown(now, last)
    at = f", {local(looks[0].at):%H:%M:%S}" if looks else ""
    lines = [plain(unanswered)] if unanswered else []
    if not all(alias in now.failed for alias in names):  # else the headlines are old
        lines += headlines(looks, names)
    is_calm = not unanswered and all(found.is_calm for found in looks)
    figures = [
        Text.assemble((f"{label}: ", "bold"), (text, style))
        for label, text, style in (tiles(looks) if looks else ())
    ]
    top = Group(
        Text(f"pgqueue top: {', '.join(names)}{at}{', paused' if view.is_paused else ''}", _DIM),
        *(Text(line, "bold black on green" if is_calm else "bold white on red") for line in lines),
        Columns(figures, equal=True, padding=(0, 3)),
    )
    height = len(console.render_lines(top))
    panes = {
        name: pane.table(looks, view.sorts[name], names)
        for name, pane in PANES.items()
        if looks and view.pane in ("", name)
    }
    most = shares({name: len(table.rows) or 1 for name, table in panes.items()}, console.height - height - 1)
    tables = (_drawn(table, most[name]) for name, table in panes.items())
    screen = Layout()
    screen.split_column(
        Layout(top, size=height),
        Layout(Group(*chain.from_iterable(tables))),
        Layout(Text(view.help, _DIM, no_wrap=True), size=1),
    )
    return screen


def _drawn(table: Table, most: int) -> Iterator[RenderableType]:
    """Yield an empty line, and the table with its first rows. Nothing in their texts is markup."""
    from rich.table import Table
    from rich.text import Text

    cell = partial(Text, no_wrap=True, overflow="ellipsis")
    shown = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for place, name in enumerate(table.head):
        # What may be wrapped is cut first, the widest column before others; so numbers stay whole.
        is_number = place in table.right
        shown.add_column(cell(name, "bold"), justify="right" if is_number else "left", no_wrap=is_number)
    for row in table.rows[:most]:
        shown.add_row(*(cell(plain(text), style) for text, style in row))
    yield ""
    yield shown if table.rows else Text.assemble((table.head[0], "bold"), "\n", (table.empty, _DIM))
    if hidden := len(table.rows) - most:
        yield Text(f"… {hidden} more" if hidden > 0 else "", _DIM)


_TICK = 0.2  # seconds until a new look or a new size is noticed


class _Poller(threading.Thread):
    """Looks at the queue, again and again, on a connection of its own."""

    is_over = is_paused = False
    now: Answers[Look] | None = None
    failure: BaseException | None = None

    def __init__(self, aliases: Sequence[str], interval: float) -> None:
        super().__init__(name="pgqueue-top", daemon=True)
        self._aliases, self._interval = aliases, interval
        self.wake = threading.Event()
        """Set to look at once."""

    @translation.override("en")  # as the command, whose thread this is not
    def run(self) -> None:
        try:
            while not self.is_over:
                if not self.is_paused or self.now is None:
                    self.now = look(self._aliases)
                self.wake.wait(self._interval)
                self.wake.clear()
        except BaseException as error:  # the loop raises it
            self.failure = error
        finally:
            connections.close_all()  # of this thread


def watch(aliases: Sequence[str], interval: float, console: Console) -> None:
    """Draw until ``q``, Ctrl-C or SIGTERM."""
    from rich.live import Live

    poller, view = _Poller(aliases, interval), View(aliases)
    poller.start()
    live = Live(console=console, screen=True, auto_refresh=False, redirect_stderr=False)
    last: dict[str, Look] = {}
    drawn, pressed, is_changed = None, "", False
    # SIGTERM ends the drawing as Ctrl-C does, so that the terminal is restored.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with live, keys() as key:
            while poller.failure is None and pressed != "q":
                # Rich asks for the size of the standard streams, which need not be this terminal.
                console.width, console.height = size = os.get_terminal_size(console.file.fileno())
                now = poller.now
                if now is not None and (is_changed or drawn != (now, size)):
                    last |= now.given
                    live.update(picture(now, last, view, console), refresh=True)
                    drawn = now, size
                pressed = key(_TICK)
                is_changed = view.press(pressed)
                poller.is_paused = view.is_paused
                if pressed == "r" or (pressed == "p" and not view.is_paused):
                    poller.wake.set()
    except KeyboardInterrupt:
        pass
    finally:
        signal.signal(signal.SIGTERM, before)
        poller.is_over = True
        poller.wake.set()
    if poller.failure is not None:
        raise poller.failure


#: What an arrow or a function key sends, which means nothing here.
_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O.|.)?", re.DOTALL)


@contextmanager
def keys() -> Iterator[Callable[[float], str]]:
    """Yield a function that waits for a key for some seconds, and returns it; empty if there was none.

    The terminal is as before at the end, whatever happens. At the end of the input, it returns "q". If the
    input is not a terminal, there are no keys.
    """
    inputs = [sys.stdin.fileno()] if sys.stdin.isatty() else []
    before = [termios.tcgetattr(each) for each in inputs]
    typed: list[str] = []

    def read(seconds: float) -> str:
        if not typed and select.select(inputs, [], [], seconds)[0]:
            found = os.read(inputs[0], 64).decode("ascii", "ignore")
            if not found:
                return "q"
            typed.extend(_SEQUENCE.sub("", found))
        return typed.pop(0) if typed else ""

    for each in inputs:
        tty.setcbreak(each, termios.TCSADRAIN)  # keys that were pressed before count, too
    try:
        yield read
    finally:
        for each, attributes in zip(inputs, before, strict=True):
            termios.tcsetattr(each, termios.TCSADRAIN, attributes)
