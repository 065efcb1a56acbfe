"""The place of a worker process: when the next one may start, what is known about this one, and orphans.
And what a supervisor tells others.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from time import monotonic
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from syrupy.assertion import SnapshotAssertion

from django_pgqueue.worker import spawn
from django_pgqueue.worker.spawn import Farewell, ParentLink, has_ended, is_stopped, last_words
from django_pgqueue.worker.started_jobs import StartedJobs
from django_pgqueue.worker.supervisor.child import DRAINING, ENDING, LONGEST_BACKOFF, QUICK, STARTING, Child
from django_pgqueue.worker.supervisor.fleet import divide, next_move
from django_pgqueue.worker.supervisor.supervisor import WRITE_EVERY, Service, running_jobs, stopping
from django_pgqueue.worker.waker import StopSignals
from tests.support.workers import until


def pause(child: Child, lived: float, *, registered: bool) -> tuple[float, float]:
    """Return the bounds of the next start, in seconds from the failure of a process."""
    before = monotonic()
    child.put_off(lived, registered=registered)
    after = monotonic()
    return child.start_at - after, child.start_at - before


@pytest.mark.parametrize(("lived", "registered"), [(QUICK / 2, True), (100 * QUICK, False)])
def test_the_next_process_starts_later_the_more_often_the_last_ones_ended_quickly_or_never_registered(
    lived: float, registered: bool
) -> None:
    child = Child()
    for failures in range(1, 30):
        least, most = pause(child, lived, registered=registered)
        middle = 0.1 * 2**failures
        assert most >= min(LONGEST_BACKOFF, middle * 0.8)
        assert least <= min(LONGEST_BACKOFF, middle * 1.2)
        assert child.stillbirths == (0 if registered else failures)
    # One that has worked for a while is replaced at once.
    least, _ = pause(child, QUICK * 2, registered=True)
    assert least <= 0
    assert child.stillbirths == 0


def test_many_that_fail_together_do_not_come_back_together() -> None:
    pauses = [pause(Child(), 0.0, registered=False)[1] for _ in range(50)]
    assert max(pauses) - min(pauses) > 0.02


@pytest.fixture(params=[True, False], ids=["waitid", "ps"])
def sleeper(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[subprocess.Popen[bytes]]:
    """A process that sleeps, on a system with `waitid` and on one without."""
    if request.param and not spawn.HAS_WAITID:
        pytest.skip("this system has no waitid")
    monkeypatch.setattr(spawn, "HAS_WAITID", request.param)
    process = subprocess.Popen(["sleep", "1000"])
    yield process
    process.kill()
    process.wait()


def test_a_process_that_is_stopped_goes_on_and_ends(sleeper: subprocess.Popen[bytes]) -> None:
    for _ in range(2):
        assert not is_stopped(sleeper)
        os.kill(sleeper.pid, signal.SIGSTOP)
        until(lambda: is_stopped(sleeper))
        assert not has_ended(sleeper)
        os.kill(sleeper.pid, signal.SIGCONT)
        until(lambda: not is_stopped(sleeper))
    os.kill(sleeper.pid, signal.SIGKILL)
    until(lambda: has_ended(sleeper))
    assert sleeper.wait() == -signal.SIGKILL


@pytest.mark.parametrize(("words", "heard"), [
    (b'[64, ""]', Farewell(code=64)),
    (b'[null, "ValueError: x"]', Farewell(cause="ValueError: x")),
    (b'[null, "' + b"x" * 5_000 + b'"]', Farewell(cause="x" * 5_000)),
    (b'[null, "\xff', None),
    (b"[64", None),
    (b"", None),
])  # fmt: skip
@pytest.mark.parametrize("closed", [True, False])
def test_last_words(words: bytes, heard: Farewell | None, *, closed: bool) -> None:
    """This also holds while a child of the process still has the link open."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.send(words)
        if closed:
            theirs.close()
        assert last_words(ours) == heard


def test_a_cause_is_one_line_whatever_the_exception_is() -> None:
    class Unprintable(Exception):
        def __str__(self) -> str:
            raise ValueError

    for error in (ValueError("a\nb \udcff" + "x" * 10_000), Unprintable(), SystemExit(0)):
        ours, theirs = socket.socketpair()
        with ours, theirs:
            line = ParentLink(theirs.fileno())
            line.say(error=error)
            line.say(0)  # too late
            said: Any = last_words(ours)
        assert said.code is None
        assert type(error).__name__ in said.cause
        assert "\n" not in said.cause
        assert len(said.cause) <= spawn.LONGEST_CAUSE


@pytest.fixture
def _signals() -> Iterator[None]:
    numbers = (signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.mark.usefixtures("_signals")
@pytest.mark.parametrize(
    ("before", "counts"), [(signal.SIG_DFL, [1, 1, 1, 1, 2]), (signal.SIG_IGN, [0, 0, 1, 1, 2])],
    ids=["a terminal", "under nohup"],
)  # fmt: skip
def test_a_terminal_that_closes_asks_once_and_never_hurries_us(before: Any, counts: list[int]) -> None:
    asked: list[int] = []
    signals = StopSignals(lambda: asked.append(1))
    signal.signal(signal.SIGHUP, before)
    signals.catch(signal.SIGTERM, signal.SIGQUIT)
    found = []
    for number in (signal.SIGHUP, signal.SIGHUP, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.raise_signal(number)
        found.append(signals.count)
    assert found == counts
    assert len(asked) == (5 if before == signal.SIG_DFL else 2)


class Place(Child):
    """A place whose process does not get as far as to load the project, and whose clock a test can set."""

    def __init__(self) -> None:
        super().__init__()
        self._process = subprocess.Popen(["sleep", "1000"], process_group=0)
        self._line, self.its_end = socket.socketpair()
        self.memory = self.jobs = StartedJobs.private(1)
        self._enter(STARTING)

    def end(self) -> Any:
        """Wait for the end of the process, which was killed."""
        end: Any = self.wait(5.0)
        assert end.was_killed
        return end

    def passes(self, seconds: float) -> None:
        """Look again when this time has passed."""
        self.look(lambda: "1 running job (x 9 s)")
        self._since -= seconds
        self.look(lambda: "1 running job (x 9 s)")


@pytest.fixture
def place() -> Iterator[Place]:
    place = Place()
    yield place
    place.kill()
    place.wait(5.0)
    place.its_end.close()


def test_a_process_that_hangs_while_it_starts_is_told_of_and_replaced(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """Its settings wait for something, such as a server of secrets."""
    place.passes(STARTING.warn_after / 2)
    assert caplog.messages == []
    place.passes(STARTING.warn_after)
    (said,) = caplog.messages
    assert "still loads the settings and apps after 15 s; it is killed at 120 s" in said
    assert (place.state, place.is_slow) == (STARTING, True)
    place.passes(spawn.START_WITHIN)
    assert place.end().how == "signal SIGKILL (it had not loaded the settings and apps within 120 s)"


def test_one_that_has_loaded_the_project_may_wait_for_its_database(place: Place) -> None:
    place.memory.is_set_up = True
    place.passes(2 * spawn.START_WITHIN)
    assert not place.is_slow
    assert place.lives


def test_one_that_waits_for_its_last_jobs_says_for_which_and_lets_them_run_until_its_grace_period_ends(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """It is replaced after ``--max-jobs``, and a job may run as long as it likes. Then it is drained."""
    place.memory.is_set_up = True
    place.memory.drains_until = float("inf")
    for _ in range(3):
        place.passes(3600)
    assert place.state is DRAINING
    (said,) = caplog.messages
    assert "claims no more jobs, and has waited 60 s for 1 running job (x 9 s). No other" in said
    place.memory.drains_until = monotonic() - spawn.END_WITHIN + 60
    place.passes(3600)
    assert place.lives
    place.memory.drains_until = monotonic() - spawn.END_WITHIN
    place.passes(0.0)
    assert place.end().how == "signal SIGKILL (it did not end within 30 s after its grace period)"


@pytest.mark.parametrize(("words", "farewell"), [
    (b'[0, ""]', Farewell(code=0)), (b'[null, "LookupError: x"]', Farewell(cause="LookupError: x")),
])  # fmt: skip
def test_one_that_was_done_and_does_not_end_is_killed(
    place: Place, caplog: pytest.LogCaptureFixture, words: bytes, farewell: Farewell
) -> None:
    """What it has said still holds."""
    place.its_end.send(words)
    place.passes(spawn.END_WITHIN / 2)
    assert place.state is ENDING
    assert place.lives
    place.passes(spawn.END_WITHIN)
    assert place.end().farewell == farewell
    (said,) = caplog.messages
    assert "it was done, but an exit handler or a thread kept it from ending within 30 s" in said


# -- orphans, in a separate process, because it would also reap the processes of other tests

PROGRAM = """
import os, subprocess, sys
from django_pgqueue.worker.supervisor.child import reap_orphans

reap_orphans(set)  # there are no children
ended = [subprocess.Popen(["sh", "-c", f"exit {code}"]) for code in (7, 8, 9)]
own, *others = ended
for process in ended:
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
reap_orphans(lambda: {own.pid})
print(own.wait())
reap_orphans(lambda: {own.pid})
for process in others:
    try:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG)
    except ChildProcessError:
        print("reaped")
    process.returncode = 0
running = subprocess.Popen(["sleep", "1000"])
reap_orphans(set)  # no child has ended
print(running.poll())
running.kill()
print(running.wait())
"""


def test_orphans_are_reaped_and_our_own_keep_their_exit_code() -> None:
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert ended.stdout.split() == ["7", "reaped", "reaped", "None", "-9"], ended.stderr


# --- How the processes of a worker are divided among its shards, and when one moves


@pytest.mark.parametrize(("processes", "weights", "parts"), [
    (1, {"a": 1, "b": 1}, [1, 1]),  # each has one at least
    (4, {"a": 1, "b": 3}, [1, 3]),
    (8, {"a": 1, "b": 3}, [2, 6]),
    (5, {"a": 1, "b": 1}, [3, 2]),
    (4, {"a": 1, "b": 1000}, [1, 3]),
    (7, {"a": 2, "b": 1, "c": 1}, [3, 2, 2]),
])  # fmt: skip
def test_processes_are_divided_by_weight(processes: int, weights: dict[str, int], parts: list[int]) -> None:
    assert list(divide(processes, weights).values()) == parts


IDLE, BUSY, WAITS = {"is_idle": True, "waits": False}, {"is_idle": False, "waits": False}, {
    "is_idle": False, "waits": True
}  # fmt: skip


def shard(processes: int, share: int, **looks: bool) -> Any:
    return SimpleNamespace(processes=processes, share=share, **looks)


@pytest.mark.parametrize(("a", "b", "moves"), [
    (shard(2, 2, **IDLE), shard(2, 2, **WAITS), True),
    (shard(2, 2, **IDLE), shard(2, 2, **BUSY), False),
    (shard(2, 2, **BUSY), shard(2, 2, **WAITS), False),
    (shard(1, 2, **IDLE), shard(3, 2, **WAITS), False),  # each keeps one
    (shard(3, 2, **WAITS), shard(1, 2, **WAITS), True),  # both wait: the shares count
    (shard(3, 2, **BUSY), shard(1, 2, **WAITS), True),
    (shard(2, 2, **WAITS), shard(2, 2, **WAITS), False),
], ids=str)  # fmt: skip
def test_a_process_moves_to_where_jobs_wait(a: Any, b: Any, *, moves: bool) -> None:
    assert next_move([a, b]) == ((a, b) if moves else None)


def test_the_shard_that_lacks_most_comes_first_and_an_idle_process_goes_first() -> None:
    shards = [shard(4, 2, **BUSY), shard(2, 2, **IDLE), shard(1, 4, **WAITS), shard(2, 2, **WAITS)]
    assert next_move(shards) == (shards[1], shards[2])


# --- What a supervisor tells: the file that shows that it lives, systemd, and a user who stops it


# -- the file


@pytest.mark.parametrize("path", ["/nowhere/alive", "/"])
def test_the_command_refuses_a_path_at_its_start(path: str) -> None:
    with pytest.raises(CommandError, match="cannot be written"):
        call_command("runqueueworker", "--alive-file", path)


# -- systemd


@pytest.fixture
def receiver() -> Iterator[socket.socket]:
    """A socket in the abstract name space, with an address that the kernel has chosen."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind("")
        receiver.setblocking(False)
        yield receiver


def told_to(receiver: socket.socket, **variables: str) -> Service:
    name: bytes = receiver.getsockname()
    return Service(environment={"NOTIFY_SOCKET": "@" + name[1:].decode(), **variables})


def heard(receiver: socket.socket) -> list[str]:
    messages = []
    while True:
        try:
            messages.append(receiver.recv(4096).decode())
        except BlockingIOError:
            return messages


def test_what_systemd_hears(receiver: socket.socket) -> None:
    manager = told_to(receiver)
    for _ in range(2):
        manager.starting(5.0)  # it cannot start yet and asks for more time
    for _ in range(2):
        manager.ready()
        manager.sign(1.0, "fine")
    manager.sign(2.0, "not so fine")
    manager.stopping(1.5)
    assert heard(receiver) == [
        *["EXTEND_TIMEOUT_USEC=35000000"] * 2,
        "READY=1", "STATUS=fine", "STATUS=not so fine", "STOPPING=1\nEXTEND_TIMEOUT_USEC=1500000",
    ]  # fmt: skip


def test_the_watchdog_hears_from_us_at_half_its_interval(receiver: socket.socket) -> None:
    manager = told_to(receiver, WATCHDOG_USEC="30000000", WATCHDOG_PID=str(os.getpid()))
    said = []
    for now in (100.0, 114.9, 115.0, 129.9, 131.0):
        manager.sign(now, "")
        said.append(len(heard(receiver)))
    assert said == [1, 0, 1, 0, 1]
    assert manager.next_sign == 146.0


@pytest.mark.parametrize(
    "variables",
    [{"WATCHDOG_PID": "1"}, {"WATCHDOG_USEC": "soon"}, {"WATCHDOG_USEC": "²"}, {"WATCHDOG_USEC": "0"}],
)
def test_a_watchdog_that_is_not_for_us(receiver: socket.socket, variables: dict[str, str]) -> None:
    manager = told_to(receiver, **{"WATCHDOG_USEC": "1000000", **variables})
    manager.sign(100.0, "")
    assert heard(receiver) == []
    assert manager.next_sign == float("inf")


@pytest.mark.parametrize(
    ("path", "address"),
    [("", ""), ("/nowhere/alive", ""), ("", "/nowhere/at/all"), ("", "vsock:2:1234"), ("", "@" + 200 * "x")],
    ids=["nobody is to be told", "no file", "no socket", "no unix socket", "too long"],
)
def test_who_cannot_be_told_is_complained_about_once(
    path: str, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    service = Service(path, environment={"NOTIFY_SOCKET": address} if address else {"WATCHDOG_USEC": "9"})
    service.ready()
    for number in range(3):
        service.sign(number * WRITE_EVERY, f"fine {number}")
    service.remove()
    assert (service.next_sign == float("inf")) is (path == "")
    assert [record.levelname for record in caplog.records] == ["ERROR"] * bool(path or address)
    if address:
        assert caplog.messages[0].startswith(f"cannot notify systemd at '{address}': ")


# -- a user who stops the command


def test_what_a_user_is_told_who_stops_the_command(wording: SnapshotAssertion) -> None:
    none, one = running_jobs([]), running_jobs(["shop.tasks.ship 12 s"])
    two = running_jobs(["job 7", "job 8"])
    five = running_jobs([f"shop.tasks.{name} 5 s" for name in "abcde"])
    unknown = "the running jobs"
    first = [
        (none, 30.0, signal.SIGINT), (one, 30.0, signal.SIGINT), (five, 2.5, signal.SIGTERM),
        (one, 30.0, signal.SIGHUP), (one, 0.0, signal.SIGTERM), (two, 30.0, None),
        (unknown, 30.0, signal.SIGINT),
    ]  # fmt: skip
    second = [(running, None, None) for running in (none, one, two, unknown)]
    assert "\n".join(stopping(*each) for each in [*first, *second]) == wording
