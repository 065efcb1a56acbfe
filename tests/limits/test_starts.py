"""Who may start under limits and rates, in one session: scripts such as ``add abc; claim a; done a``.

Jobs have the names of letters, in the order in which they were added. A step is a method of `Play`, or in a
table before it: a change, or what is expected then. After a colon, it names a key in place of ``k``, or a
queue. Time is moved by moving the state of a rate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from tests.support import jobs, limits
from tests.support.jobs import Range, add, cancel, claim, register, sql_claim, value
from tests.support.limits import add_keyed, add_many, move_state, repair, running, set_limit, set_rate
from tests.support.sessions import Connect, Connection

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("settled_server")]

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
#: Those that list what is expected: everything of a condition, in this order.
LISTS = {
    "line": (
        "shelf = 0 AND wait_position IS NOT NULL AND status <> 'running'",
        "queue_name, priority DESC, wait_position",
    ),
    "live": ("shelf = 0",),
    "asked": ("cancel_requested_at IS NOT NULL",),
}
#: Those that enqueue jobs of a key one by one, and jobs without a key to a queue, with this priority.
KEYED: dict[str, dict[str, Any]] = {"add": {}, "high": {"priority": 5}, "mail": {"queue_name": "mail"}}
PLAIN = {"plain": 0, "urgent": 1}
#: Those that are one statement. The last two change rows behind the back of the queue.
STATEMENTS = {
    "unlimited": "SELECT pgqueue_set_limit('limit', 'k', no_concurrency => true)",
    "recover": "SELECT _pgqueue_recover(ARRAY[%(worker)s::bigint], NULL, NULL, false, 'lost', 3, 100, 20)",
    "pause": f"SELECT pgqueue_pause('task', '{TASK}')",
    "again": "SELECT pgqueue_retry(%(jobs)s)",
    "run_now": "SELECT pgqueue_run_now(%(jobs)s)",
    "delete": "DELETE FROM pgqueue_job WHERE id = ANY(%(jobs)s)",
    "postpone": "UPDATE pgqueue_job SET run_after = '2090-01-01Z' WHERE id = ANY(%(jobs)s)",
}


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
            found: Found = None
            if name in OUTCOMES:
                found = self._finish(letters, **OUTCOMES[name])
            elif name in CHANGES:
                found = CHANGES[name](self.one, self._ids(letters)), len(letters)
            elif name in STATUSES:
                those = self._where(f"status = '{name}'")
                found = "".join(letter for letter in letters if letter in those), letters
            elif name in LISTS:
                found = self._where(*LISTS[name]), letters
            elif name in KEYED:
                self._name(letters, add_keyed(self.one, len(letters), key or "k", **KEYED[name]))
            elif name in PLAIN:
                options = {"queue_name": key or "default", "priority": PLAIN[name]}
                self._name(letters, jobs.add(self.one, len(letters), **options))
            elif name in STATEMENTS:
                self.one.execute(STATEMENTS[name], {"worker": self.worker, "jobs": self._ids(letters)})
            else:
                found = getattr(self, name)(*words, **({"key": key} if key else {}))
            assert found is None or found[0] == found[1], f"{step.strip()}: found {found[0]!r}"

    # --- What is there before

    def many(self, letters: str, key: str = "k") -> None:
        """Enqueue jobs of a key in one statement: those behind the first one are blocked."""
        self._name(letters, limits.add_many(self.one, *[key] * len(letters)))

    def limit(self, number: str, on_full: str | None = None, key: str = "k") -> None:
        limits.set_limit(self.one, key, int(number), on_full)

    def rate(self, numbers: str, key: str = "k") -> None:
        """Set ``<starts>/<seconds>/<burst>``, and how many may run."""
        starts, seconds, burst, *running = map(int, numbers.split("/"))
        more = {"running": running[0]} if running else {}
        limits.set_rate(self.one, key, starts, timedelta(seconds=seconds), burst, **more)

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

    def resume(self, count: str) -> Found:
        self.one.execute("SELECT pgqueue_resume('task', %s)", (TASK,))
        return value(self.one, "SELECT _pgqueue_unpause(10)"), int(count)

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


MINUTE = timedelta(minutes=1)

SCRIPTS = {
    # --- Limits
    "the jobs of a key start in the order of priority and line":
        "add abc; high de; backwards d; claim; running d; line eabc; done d; all eabc",
    "a key without a limit allows one, and others do not matter":
        "many ab; many:k/1 cd; many:k/2 e; plain fg; claim acefg; running acefg",
    "a limit holds for each key, and one that rises releases the lines of all keys":
        "many:k abc; many:k/1 def; many:k/2 ghi; many:ka jkl; many:k-b mno; claim adgjm;"
        "limit 2; pending beh; blocked cfiklno; claim beh; claim",
    "a limit that is taken away lets all jobs run":
        "add abc; claim a; claim; unlimited; try_; try_; running abc; reset",
    "a key has a line in each queue, and one limit":
        "mail ab; add cd; try_; try_; try_; running 1; done_all; any 3",
    "limits of queues and of the installation":
        "plain:mail abcde; urgent:mail fghij; plain klmno; limit:queue:mail 3; claim fghklmno; claim;"
        "done fghklmno; limit:* 2; try_; running 2; claim",
    "the priorities of a limited queue share its room":
        "plain:mail abcde; urgent:mail fg; limit:queue:mail 3; claim afg",
    # --- What happens to the line
    "a job that is given back keeps its place":
        "many ab; claim a; release a; all ab",
    "recovery gives the slots of a dead worker back":
        "many ab; claim a; recover; pending a; blocked b; all ab",
    "a job in line that is edited to a later time leaves the line":
        "many abc; claim a; line bc; later b; line c; pending b; done a; all c; live b",
    "those behind a job that is edited away do not wait for it":  # many: they are blocked behind it
        "many abc; later a; all bc; now a; all a",
    "a job that is edited to another queue waits for its key there":
        "many ab; claim a; elsewhere b; claim; blocked b; done a; all b",
    "a job that is edited to another queue when its key is free":
        "many ab; claim a; done a; elsewhere b; all b",
    "a job that is moved to a later time by hand does not hold up its line":
        "add abcd; postpone a; claim b; postpone c; done b; repair 1; claim d; live acd",
    # --- Those that do not wait
    "a job that finds no room is cancelled":
        "limit 1 cancel_new; add ab; claim a; moved 1; cancelled b; asked;"
        "why b skipped: as many jobs of its limit key were running as its limit allows;"
        "done a; claim; add c; all c",
    "a newer job replaces older ones":
        "limit 1 cancel_old; add a; claim a; add b; claim; moved 2; asked a; blocked b;"
        "add c; claim; moved 2; running a; cancelled b; blocked c;"
        "why b replaced by a newer job of its limit key; stopped a; all c",
    "newer jobs in one claim replace older ones":
        "limit 2 cancel_old; add abcde; claim de; moved 3; cancelled abc; running de",
    # --- Rates
    "a burst starts, and the next one is the alarm clock of the line":
        "rate 6/60/3; add abcdef; claim abc; moved 3; pending d; blocked ef; due d 9 10; claim; moved 0;"
        "clock 10; claim d; pending e; blocked f; due e 9 10",
    "long jobs do not hold up the rate":
        "rate 6/60/1; add abcd; claim a; clock 10; claim b; clock 10; claim c; clock 10; claim d;"
        "running abcd",
    **{
        f"a job that comes back waits for the rate like any other: {end}":
            f"rate 6/60/1; add ab; claim a; {end}; claim; clock 10; try_; running 1; clock 5; claim"
        for end in ("retry a", "release a", "recover")
    },
    "a quiet time allows no more than the burst":
        "rate 6/60/2; add abcde; claim ab; clock 3600; try_; try_; running abcd",
    "many jobs of one statement start at the rate":
        "rate 6/60/2; many abcde; try_; try_; running ab; pending c; blocked de;"
        "done a; pending c; blocked de",
    "slots and a rate hold together":  # blocked: a finish releases them, not the time
        "rate 60/60/10/2; add abcd; claim ab; blocked cd; done a; claim c;"
        "rate 1/60/1/2; done b; claim; pending d; due d 0 60",
    "a job with a higher priority is the next one":
        "rate 6/60/1; add ab; claim a; high c; claim; line cb; clock 10; try_; try_; running ac; due b 9 10;"
        "clock 10; claim b",
    **{
        f"the line gets another alarm clock if its own goes away: {change}":
            f"rate 6/60/1; add abc; claim a; {change} b; claim; pending c; due c 9 10;"
            "clock 10; try_; try_; running 2"
        for change in ("cancel", "later", "elsewhere", "low")
    },
    "a limit that changes lets the next one start at once":  # then a key without a limit allows one at once
        "rate 1/3600/1; add abc; claim a; due b 3500 3600; rate 360/3600/1; due b 0; claim; due b 10.001;"
        "ahead 10.001; reset; claim; done a; claim b; line c",
    "a lower rate holds at once":
        "rate 60/60/5; add abcdefghi; claim abcde; rate 1/3600/1; claim; pending f; blocked ghi; due f 3600;"
        "ahead 3600",
    "a clock that steps back blocks nobody for longer than a burst":
        "rate 6/60/2; add abcd; claim ab; clock -86400; due c 86000 86411; repair 1; claim; ahead 20.001;"
        "due c 10.001; repair 0",
    "repair leaves a line alone that waits for its rate, and wakes one without an alarm clock":
        "rate 1/60/1; add abcd; claim a; repair 0; delete b; repair 1; claim; pending c",
    "keys have rates of their own":
        "rate 1/60/2; many:k/1 abc; many:k/2 def; many:other g; try_; try_; running abdeg; states k/1 k/2",
    "rates of queues and of the installation":
        "plain:mail abcde; rate:queue:mail 6/60/3; claim abc; claim;"
        "rate:* 6/60/2; plain fghij; claim fg; claim",
    "an application takes starts of the same rate":
        "rate 6/60/3; take 2; full 2 9 10; add ab; claim a; full 1 9 10.001; clock -86400; full 1 10.001",
}  # fmt: skip

#: What only workers of this package do: they claim during a pause, and read queues in an order.
OF_WORKERS = {
    "a retry that waits for its time holds no slot and joins at the end":
        "many abc; claim a; retry a; claim b; claim; running b; line ca; done b; all ca",
    "a limit that rises lets claims start only what they have picked":
        "many abcdef; claim a; limit 4; claim b; moved 2; claim cd; running abcd; limit 2; done a; claim;"
        "running bcd",
    "a job that is put aside for a pause gives its slot back":
        "many ab; pause; claim a; paused a; blocked a; pending b; line b; claim b; done b; resume 1; all a",
    "a job whose pause has just ended keeps its place":
        "many abc; claim a; done a; claim b; paused b; all bc",
    "retry and run_now leave a paused job with a key out of the line":
        "many a; pause; claim a; paused a; again a; run_now a; blocked a; line",
    "queues share the rate of the installation in the order in which they are read":
        "rate:queue:mail 6/60/3; rate:* 6/60/5; plain:mail abcdef; plain ghijkl; claim abcgh; claim;"
        "clock:* 20; claim ij; clock:* 600; clock:queue:mail 10; claim dkl",
    "what the gate refuses is not charged to the queue":
        "rate:queue:default 6/60/10; add abcde; claim a; ahead:queue:default 0 10",
}  # fmt: skip


@pytest.fixture
def one(connect: Connect) -> Connection:
    return connect(autocommit=True)


@pytest.mark.parametrize("level", ["worker", "any language"])
@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
@pytest.mark.promise("sql-limits")
@pytest.mark.promise("rate-clock", case="a clock that steps back blocks nobody for longer than a burst")
@pytest.mark.promise("rate-change", case="a lower rate holds at once")
@pytest.mark.promise("rate-long-jobs", case="long jobs do not hold up the rate")
@pytest.mark.promise("rate-retry", case="a job that comes back waits for the rate like any other")
@pytest.mark.promise("rate-order", case="a job with a higher priority is the next one")
@pytest.mark.promise("limit-cancel-old", case="a newer job replaces older ones")
@pytest.mark.promise("limit-cancel-new", case="a job that finds no room is cancelled")
@pytest.mark.promise("limit-recovery", case="recovery gives the slots of a dead worker back")
@pytest.mark.promise("limit-place", case="a job that is given back keeps its place")
@pytest.mark.promise("limit-queue", case="limits of queues and of the installation")
@pytest.mark.promise("limit-order", case="the jobs of a key start in the order of priority and line")
def test_limits(one: Connection, script: str, level: str) -> None:
    Play(one, foreign=level != "worker").run(script)


@pytest.mark.parametrize("script", OF_WORKERS.values(), ids=OF_WORKERS)
@pytest.mark.promise("limit-retry", case="a retry that waits for its time holds no slot and joins at the end")
def test_limits_for_workers(one: Connection, script: str) -> None:
    Play(one, foreign=False).run(script)


@pytest.mark.parametrize("scan", ["on", "off"])
def test_a_line_has_one_alarm_clock_whatever_the_plan(one: Connection, scan: str) -> None:
    """A nested loop once read the first of the line again for each job, and found another one each time."""
    for setting in ("enable_hashjoin", "enable_mergejoin"):
        one.execute(f"SET {setting} TO off")
    one.execute(f"SET enable_indexscan TO {scan}")
    Play(one, foreign=False).run("rate 6/60/3; add abcdef; claim abc; pending d; blocked ef")


def test_a_round_of_repair_goes_on_where_the_last_one_ended(one: Connection) -> None:
    add_many(one, *[f"k/{number}" for number in range(5) for _ in range(2)])
    one.execute("DELETE FROM pgqueue_job_live WHERE status = 'pending'")  # nobody releases the others
    look = "SELECT lines, reached, released FROM _pgqueue_repair_lines(%s, 2)"
    reached: str | None = ""
    found = []
    while reached is not None:
        lines, reached, released = one.execute(look, (reached,)).fetchone() or (0, None, 0)
        found.append((lines, released))
    assert found == [(2, 2), (2, 2), (1, 1)]
    assert repair(one) == 0


# --- Why a job does not start


def test_why_a_job_does_not_start_is_one_query(one: Connection) -> None:
    first, second, third = add_many(one, "k/1", "k/1", "k/1")
    (plain,) = add(one)
    claim(one, 1)
    set_limit(one, "queue:default", 5)
    set_limit(one, "*", 1)
    query = "SELECT * FROM pgqueue_blocked_by(%s)"
    assert one.execute(query, (third,)).fetchall() == [
        ("k", "k/1", True, 1, 1, 1, [first], None),
        ("queue:default", None, False, 5, 1, None, [first], None),
        ("*", None, True, 1, 1, None, [first], None),
    ]
    assert value(one, "SELECT place FROM pgqueue_blocked_by(%s) LIMIT 1", second) == 0
    assert [row[0] for row in one.execute(query, (plain,)).fetchall()] == ["queue:default", "*"]
    cancel(one, [plain])
    assert one.execute(query, (plain,)).fetchall() == []


def test_why_a_job_does_not_start_names_the_next_start(one: Connection) -> None:
    set_rate(one, "k", 6, MINUTE)
    first, second, _ = add_keyed(one, 3)
    claim(one, ranges=[Range()])
    query = (
        "SELECT name, is_full, allowed, place, extract(epoch FROM next_start - clock_timestamp())::float8"
        " FROM pgqueue_blocked_by(%s)"
    )
    (row,) = one.execute(query, (second,)).fetchall()
    assert row[:4] == ("k", True, None, 0)
    assert 9 < row[4] <= 10.001
    move_state(one, "k", 20)
    assert one.execute(query, (second,)).fetchall() == [("k", False, None, 0, None)]
    assert first in running(one)
