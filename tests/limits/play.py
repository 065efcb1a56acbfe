"""Scripts about limits: steps in one session, such as ``add abc; claim a; done a; claim b``.

Jobs have the names of letters, in the order in which they were added. A step is a method of `Play`, or in a
table before it: a change, or what is expected then. After a colon, it names a key in place of ``k``, or a
queue. Time is moved by moving the state of a rate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from tests.support import jobs, limits
from tests.support.foreign import register, sql_claim
from tests.support.jobs import Range, value
from tests.support.sessions import Connection

__all__ = ["Play"]

#: What a worker of this package reads, in this order.
RANGES = [Range(priority=5), Range("mail", 1), Range("mail"), Range(), Range(priority=-5), Range("other")]
TASK = "tests.app.tasks.noop"

#: What was found, and what is expected.
Found = tuple[object, object] | None

#: Steps that report an outcome, which is accepted; that change jobs; and that expect a status.
OUTCOMES: dict[str, dict[str, Any]] = {
    "done": {"kind": "done"},
    "retry": {"kind": "retry", "delay": 0.001},
    "release": {"kind": "release"},
    "paused": {"kind": "paused", "reason": "paused"},  # the worker has seen a pause
    "stopped": {"kind": "cancelled"},
}
CHANGES: dict[str, Callable[..., int]] = {
    "cancel": jobs.cancel,
    "later": partial(jobs.edit, run_after="2090-01-01Z"),
    "now": partial(jobs.edit, delay=timedelta(0)),
    "elsewhere": partial(jobs.edit, queue_name="other"),
    "low": partial(jobs.edit, priority=-5),
}
STATUSES = ("pending", "blocked", "cancelled")


class Play:
    """Plays scripts as a worker does, or with the functions for workers in other languages."""

    def __init__(self, connection: Connection, *, foreign: bool) -> None:
        self.one = connection
        self.worker = register(connection)
        self._is_foreign = foreign
        self._names: dict[int, str] = {}
        self._lease = self._moved = 0

    def run(self, script: str) -> None:
        """Run a script. Fail at the first step that finds something else."""
        for step in script.split(";"):
            verb, *words = step.split()
            name, _, key = verb.partition(":")
            letters = words[0] if words else ""
            found: Found
            if name in OUTCOMES:
                found = self._finish(letters, **OUTCOMES[name])
            elif name in CHANGES:
                found = CHANGES[name](self.one, self._ids(letters)), len(letters)
            elif name in STATUSES:
                those = self._where(f"status = '{name}'")
                found = "".join(letter for letter in letters if letter in those), letters
            else:
                found = getattr(self, name)(*words, **({"key": key} if key else {}))
            assert found is None or found[0] == found[1], f"{step.strip()}: found {found[0]!r}"

    # --- What is there before

    def add(self, letters: str, key: str = "k", **options: Any) -> None:
        """Enqueue jobs of a key one by one."""
        self._name(letters, limits.add_keyed(self.one, len(letters), key, **options))

    def high(self, letters: str) -> None:
        self.add(letters, priority=5)

    def mail(self, letters: str) -> None:
        self.add(letters, queue_name="mail")

    def many(self, letters: str, key: str = "k") -> None:
        """Enqueue jobs of a key in one statement: those behind the first one are blocked."""
        self._name(letters, limits.add_many(self.one, *[key] * len(letters)))

    def plain(self, letters: str, key: str = "default", priority: int = 0) -> None:
        """Enqueue jobs without a limit key to a queue."""
        self._name(letters, jobs.add(self.one, len(letters), queue_name=key, priority=priority))

    def urgent(self, letters: str, key: str) -> None:
        self.plain(letters, key, priority=1)

    def limit(self, number: str, on_full: str | None = None, key: str = "k") -> None:
        limits.set_limit(self.one, key, int(number), on_full)

    def rate(self, numbers: str, key: str = "k") -> None:
        """Set ``<starts>/<seconds>/<burst>``, and how many may run."""
        starts, seconds, burst, *running = map(int, numbers.split("/"))
        more = {"running": running[0]} if running else {}
        limits.set_rate(self.one, key, starts, timedelta(seconds=seconds), burst, **more)

    def unlimited(self) -> None:
        self.one.execute("SELECT pgqueue_set_limit('limit', 'k', no_concurrency => true)")

    def reset(self) -> Found:
        return value(self.one, "SELECT pgqueue_reset_limit('limit', 'k')"), True

    def clock(self, seconds: str, key: str = "k") -> None:
        """Let so many seconds pass."""
        limits.move_state(self.one, key, float(seconds))

    # --- Changes

    def claim(self, letters: str = "") -> Found:
        """Claim: exactly these start."""
        return self._claim(), letters

    def backwards(self, letters: str) -> Found:
        return self._claim(RANGES[::-1]), letters

    def try_(self) -> None:
        self._claim()

    def done_all(self) -> None:
        self._finish(self._where("status = 'running'"), "done")

    def recover(self) -> None:
        """The worker has died."""
        self.one.execute(
            "SELECT _pgqueue_recover(%s::bigint[], NULL, NULL, false, 'lost', 3, 100, 20)", ([self.worker],)
        )

    def ask(self, function: str, letters: str) -> None:
        """Call ``pgqueue_retry`` or ``pgqueue_run_now``, which may refuse."""
        value(self.one, f"SELECT pgqueue_{function}(%s)", self._ids(letters))

    def pause(self) -> None:
        self.one.execute("SELECT pgqueue_pause('task', %s)", (TASK,))

    def resume(self, count: str) -> Found:
        self.one.execute("SELECT pgqueue_resume('task', %s)", (TASK,))
        return value(self.one, "SELECT _pgqueue_unpause(10)"), int(count)

    def by_hand(self, what: str, letters: str) -> None:
        """Change rows behind the back of the queue."""
        change = {
            "delete": "DELETE FROM pgqueue_job WHERE id = ANY(%s)",
            "postpone": "UPDATE pgqueue_job SET run_after = '2090-01-01Z' WHERE id = ANY(%s)",
        }[what]
        self.one.execute(change, (self._ids(letters),))

    def repair(self, count: str) -> Found:
        """Maintenance makes so many claimable."""
        return limits.repair(self.one), int(count)

    def take(self, count: str) -> Found:
        """An application takes starts."""
        return self._take(count), 0

    def full(self, count: str, *bounds: str) -> Found:
        """An application is told to wait for so long."""
        return _within(self._take(count), bounds)

    # --- What is expected

    def all(self, letters: str) -> Found:
        """Claim and finish until nothing is left: they start in this order."""
        return self._all(), letters

    def any(self, letters: str) -> Found:
        """The same in any order, or so many."""
        found = "".join(sorted(self._all()))
        return (len(found), int(letters)) if letters.isdigit() else (found, letters)

    def moved(self, count: str) -> Found:
        """The worker hears of so many that the gate has blocked or cancelled."""
        return None if self._is_foreign else (self._moved, int(count))

    def running(self, letters: str) -> Found:
        """They run, or so many run."""
        found = self._where("status = 'running'")
        return (len(found), int(letters)) if letters.isdigit() else (found, letters)

    def line(self, letters: str = "") -> Found:
        where = "shelf = 0 AND wait_position IS NOT NULL AND status <> 'running'"
        return self._where(where, "queue_name, priority DESC, wait_position"), letters

    def live(self, letters: str) -> Found:
        return self._where("shelf = 0"), letters

    def asked(self, letters: str = "") -> Found:
        """They are asked to stop, and nobody else is."""
        return self._where("cancel_requested_at IS NOT NULL"), letters

    def why(self, letter: str, *words: str) -> Found:
        return value(
            self.one, "SELECT waiting_reason FROM pgqueue_job WHERE id = %s", *self._ids(letter)
        ), " ".join(words)

    def due(self, letter: str, *bounds: str) -> Found:
        """It is due in so many seconds: at least, at most."""
        return _within(limits.wait_of(self.one, *self._ids(letter)), bounds)

    def ahead(self, *bounds: str, key: str = "k") -> Found:
        """The state of a rate is ahead of the clock by so many seconds."""
        return _within(limits.state_ahead(self.one, key), bounds)

    def states(self, *names: str) -> Found:
        return value(self.one, "SELECT array_agg(key ORDER BY key) FROM pgqueue_rate"), list(names)

    # --- Helpers

    def _name(self, letters: str, ids: Sequence[int]) -> None:
        assert list(ids) == sorted(ids)
        self._names.update(zip(ids, letters, strict=True))

    def _ids(self, letters: str) -> list[int]:
        ids = {letter: job for job, letter in self._names.items()}
        return [ids[letter] for letter in letters]

    def _where(self, condition: str, order: str = "id") -> str:
        query = f"SELECT id FROM pgqueue_job WHERE {condition} ORDER BY {order}"
        return "".join(self._names[row[0]] for row in self.one.execute(query).fetchall())

    def _finish(self, letters: str, kind: str, **more: Any) -> Found:
        lease = "SELECT lease FROM pgqueue_job_live WHERE id = %s"
        accepted = [
            job
            for each in self._ids(letters)
            for job in jobs.finish(self.one, [each], kind, lease=value(self.one, lease, each), **more)
        ]
        return accepted, self._ids(letters)

    def _claim(self, ranges: Sequence[Range] = RANGES) -> str:
        if self._is_foreign:
            started = sorted(job.id for job in sql_claim(self.one, self.worker))
        else:
            self._lease += 1
            whole = "SELECT name, concurrency FROM pgqueue_limit WHERE name = '*' OR name LIKE 'queue:%'"
            limits = {name.removeprefix("queue:"): number for name, number in self.one.execute(whole)}
            rows, (self._moved, _) = jobs.claim_and_ask(
                self.one, worker=self.worker, lease=self._lease, ranges=ranges, limits=limits or None
            )
            started = [row.id for row in rows]
        return "".join(self._names[job] for job in started)

    def _all(self) -> str:
        started, pauses = "", 0
        while pauses < 3:
            found = self._claim()
            self._finish(found, "done")
            started, pauses = started + found, 0 if found else pauses + 1
        return started

    def _take(self, count: str) -> float:
        return float(value(self.one, "SELECT pgqueue_take_rate('k', '', %s)", int(count)))


def _within(found: float, bounds: Sequence[str]) -> Found:
    """Expect a number of seconds between two bounds, or up to one."""
    lowest, highest = (float("-inf"), *map(float, bounds))[-2:]
    return (found, "up to " + ", ".join(bounds)) if not lowest < found <= highest else None
