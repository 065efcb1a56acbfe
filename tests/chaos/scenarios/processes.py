"""Processes that are killed, stopped, taken down by a task, or told to end at any moment."""

from __future__ import annotations

import os
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from random import Random
from typing import NamedTuple

from django_pgqueue.models import Job
from django_pgqueue.tasks.task import BoundTask
from tests.app import ledger_tasks as tasks
from tests.support.commands import SLOW, gone
from tests.support.limits import most_in_window
from tests.support.machines import lacks_memory_group, memory_group
from tests.support.waiting import until

from ..harness.audit import Audit
from ..harness.havoc import processes_of
from ..harness.ledger import CLOCK, REPORT, Accounts, Fault, Run
from ..harness.scenario import Scenario
from ..harness.stage import PATIENCE, Stage

LEASE = 8.0  # seconds; live workers send a heartbeat within it even on a busy machine
SHORT_LEASE = {"LEASE": LEASE, "HEARTBEAT": 1.0}
MEMORY = 64 * 2**20
"""Bytes that a process may use after it has entered a memory cgroup."""
TOGETHER = 3.0
"""Seconds within which two processes of a supervisor may count as dead together, on a busy machine."""


def kill_process(stage: Stage) -> None:
    """Kill a process that runs a job, while its supervisor lives."""
    stage.havoc.kill(stage.occupy().pid)


def kill_supervisor(stage: Stage) -> None:
    """Kill a supervisor whose process runs a job. The others see that it is gone."""
    run = stage.occupy()
    stage.kill(next(command for command in stage.commands if command.process.pid == run.parent))
    stage.start()


def kill_all(stage: Stage) -> None:
    """Kill everything at once, and start again."""
    stage.occupy()
    stage.havoc.kill(
        *(command.process.pid for command in stage.commands), kind="killed everything", is_supervisor=True
    )
    for command in stage.commands[:]:
        command.process.wait(SLOW)
        stage.commands.remove(command)
        stage.start()


def stop_process(stage: Stage) -> None:
    """Stop a process that runs a job until the job runs elsewhere, and then let it continue."""
    run = stage.occupy()
    with stage.havoc.fault("stopped process", {run.pid}):
        os.kill(run.pid, signal.SIGSTOP)
        try:
            until(lambda: stage.run_after(run), seconds=PATIENCE, what="its job runs elsewhere")
        finally:
            os.kill(run.pid, signal.SIGCONT)


def segfault(stage: Stage) -> None:
    """Enqueue a job that reads what it may not read."""
    _die(stage, lambda number: tasks.dies_once.bind(number, "segfault"))


def out_of_memory(stage: Stage) -> None:
    """Enqueue a job that uses up the memory of a cgroup, in which only its process is. If no cgroup can be
    made, the process is killed in the same way, and the report has another name for this fault.
    """
    if lacks_memory_group():
        _die(stage, lambda number: tasks.dies_once.bind(number, "killed without a cgroup"))
        return
    with memory_group(MEMORY) as group:
        _die(stage, lambda number: tasks.uses_up_memory.bind(number, str(group.folder)))
        assert group.killed == 1, f"the system has killed {group.killed} processes for their memory"


def _die(stage: Stage, bind: Callable[[int], BoundTask]) -> None:
    """Enqueue a job that takes its process down in its first run."""
    job = stage.over(stage.load.enqueue(bind))
    assert job.crash_count == 1, f"job {job.pk} died once and has counted {job.crash_count} crashes"


def never_return(stage: Stage) -> None:
    """Enqueue a job that no exception can interrupt. Its process is replaced."""
    number = stage.load.enqueue(tasks.never_returns.bind, expects="failed")
    pid = stage.begun(number).pid
    assert stage.over(number).errors[-1]["class"] == "django_pgqueue.exceptions.TaskTimeout"
    gone(pid)


def hold_gil(stage: Stage) -> None:
    """Enqueue a job that holds the GIL of its process for longer than the lease."""
    number = stage.load.enqueue(lambda number: tasks.holds_gil.bind(number, int(LEASE) + 3))
    pid = stage.begun(number).pid
    with stage.havoc.fault("held GIL", {pid}, explains=False):
        stage.over(number)


def crashes_are_counted(stage: Stage, audit: Audit) -> list[str]:
    """Return which jobs have counted fewer crashes, or more, than the kills of their processes.

    A crash is counted if the process died alone and its supervisor saw it. If the supervisor is killed as
    well, what it did not write with its last heartbeat is lost. A run that was killed on the way to its first
    line is not in the ledger: a connection may have to be made, in each of four threads.
    """
    faults = audit.accounts.faults
    problems = []
    unseen = 0
    for row in audit.rows:
        runs = audit.runs_of.get(row.pk, [])
        certain = sum(run.ended is None and _died_alone(run, faults) for run in runs)
        if row.crash_count < certain:
            problems.append(f"job {row.pk} has counted {row.crash_count} crashes of {certain}: {runs}")
        unseen += max(0, row.crash_count - (len(runs) - 1))
    killed = sum(len(fault.pids or ()) for fault in faults)
    if unseen > 4 * killed:
        problems.append(f"{unseen} crashes are counted that the ledger does not know")
    return problems


def _died_alone(run: Run, faults: Sequence[Fault]) -> bool:
    """Return whether a kill hit only this process, and its supervisor lived long enough to report that."""
    hits = [fault for fault in faults if fault.hit(run)]
    own = next((fault for fault in hits if fault.pids and run.pid in fault.pids), None)
    return (
        own is not None
        and not any(fault.is_supervisor and fault.before <= own.after + REPORT for fault in hits)
        and not any(other is not own and abs(other.before - own.before) < TOGETHER for other in faults)
    )


AIM = 2.0
"""Seconds to wait for the moment at which a signal is to be sent. After that it is sent anyway."""


def at_claim(stage: Stage) -> bool:
    """Whether a job is claimed and has not begun."""
    begun = {(run.lease, run.job) for run in stage.accounts().runs}
    return any(pair not in begun for pair in _running())


def at_run(stage: Stage) -> bool:
    """Whether a job runs."""
    return any(run.ended is None for run in stage.accounts().runs)


def at_finish(stage: Stage) -> bool:
    """Whether a job has come to its end, and this is not in its row yet."""
    ended = {(run.lease, run.job) for run in stage.accounts().runs if run.ended is not None}
    return any(pair in ended for pair in _running())


def end_one(stage: Stage, moment: Callable[[Stage], bool]) -> None:
    """Tell a command to end at such a moment, and start another one at the same time."""
    command = stage.choice.choice(stage.commands)
    _wait_for(stage, moment)
    with stage.havoc.fault("SIGTERM", processes_of(command), explains=False):
        stage.commands.remove(command)
        command.send(signal.SIGTERM)
        stage.start()
        assert command.wait() == 0, command.log
    stage.all_up()


def storm(stage: Stage) -> None:
    """Tell processes and commands to end in quick succession: more signals than there are processes."""
    for moment in (at_claim, at_run, at_finish):
        _wait_for(stage, moment)
        for pid in stage.choice.sample(working := stage.at_work(), min(1, len(working))):
            with (
                stage.havoc.fault("SIGTERM of a process", {pid}, explains=False),
                suppress(ProcessLookupError),
            ):
                os.kill(pid, signal.SIGTERM)  # it may have been told before, and have ended
    for moment in (at_claim, at_run, at_finish):
        end_one(stage, moment)


def end_at_once(stage: Stage) -> None:
    """Tell a command to end twice: it does not wait for its jobs."""
    run = stage.occupy()
    command = next(command for command in stage.commands if command.process.pid == run.parent)
    with stage.havoc.fault("SIGTERM twice", processes_of(command)):
        stage.commands.remove(command)
        command.send(signal.SIGTERM)
        time.sleep(stage.choice.uniform(0.0, 0.2))
        command.send(signal.SIGTERM)
        stage.start()
        command.process.wait(SLOW)


def roll(stage: Stage) -> None:
    """Replace each command: start the new one, wait until it is up, and let the old one end."""
    for old in stage.commands[:]:
        pids = processes_of(old)
        with stage.havoc.fault("rolling restart", pids, explains=False):
            stage.start()
            stage.all_up()
            stage.end(old)


def _wait_for(stage: Stage, moment: Callable[[Stage], bool]) -> None:
    end = time.monotonic() + AIM
    while not moment(stage) and time.monotonic() < end:
        time.sleep(0.001)


def _running() -> list[tuple[int | None, int]]:
    """Return the leases and the ids of the jobs that are running for the queue."""
    return list(Job.objects.filter(shelf=0, status="running").values_list("lease", "pk"))


SCENARIOS = [
    Scenario(
        name="kills",
        promises=("dead-process", "dead-supervisor"),
        faults=(kill_process, kill_process, kill_supervisor, kill_all),
        settings={"LEASE": 3600.0},  # nobody may wait for the end of a lease
        processes=2,
        check=crashes_are_counted,
        within={"killed process": 5.0, "killed supervisor": 5.0, "killed everything": 5.0},
    ),
    Scenario(
        name="stopped past the lease",
        promises=("overlap-one-report", "stopped-process", "back-without-leases"),
        faults=(stop_process,),
        settings=SHORT_LEASE,
        within={"stopped process": LEASE + 5.0},
    ),
    Scenario(
        name="tasks that die",
        promises=("crash-is-no-attempt", "crashed-runs-isolated"),
        faults=(segfault, out_of_memory),
        settings={"BACKOFF_BASE": 0.1},
        within={
            "a task died: segfault": 5.0,
            "a task died: out of memory": 5.0,
            "a task died: killed without a cgroup": 5.0,
        },
    ),
    Scenario(
        name="a task that never returns",
        promises=("timeout-neighbors",),
        faults=(never_return,),
        settings={"TIMEOUT_GRACE": 1},
        arguments=("--threads", "4", "--grace", "2"),
    ),
    Scenario(
        name="the GIL held for longer than the lease",
        promises=("no-second-run", "live-worker-keeps-jobs"),
        faults=(hold_gil,),
        settings=SHORT_LEASE,
    ),
    Scenario(
        name="SIGTERM storm",
        promises=("told-to-stop", "sigterm"),
        faults=(storm, end_at_once),
    ),
    Scenario(
        name="rolling restart",
        promises=("no-second-run",),
        faults=(roll, roll),
        rate=40.0,
    ),
]


# --- Limits and rates while processes are killed: the intervals of the ledger show that they hold


#: Each task, its limit, and how many keys it has. 0: each `IN_A_ROW` jobs have a new key. Two workers that
#: claim some of them at the same moment find nobody in the wait queue of that key.
LIMITS = {tasks.few: (1, 4), tasks.many: (1, 0), tasks.three: (3, 3), tasks.ten: (10, 1)}
IN_A_ROW = 8
MOST = {task.module_path: limit for task, (limit, _) in LIMITS.items()}

RATE, BURST = 25, 5  # starts in a second, of each key
RATED_KEYS = 2
WINDOWS = (0.1, 1.0, 5.0)  # seconds
LATE = 0.25
"""Seconds from the decision of a claim to the stamps in its rows, at most, on a busy machine."""
BLOCK = 30  # jobs of one task in a row reach its limit


class Interval(NamedTuple):
    """When a run certainly had a place in its limit."""

    begin: float
    end: float
    run: Run | None = None


def limited(number: int, choice: Random) -> BoundTask:
    """Return a call of a task with a limit: in each second block of numbers, always of the same task."""
    among = {**LIMITS, tasks.rated: (1, RATED_KEYS)}
    block = Random(number // BLOCK)
    task = (block if block.random() < 0.5 else choice).choice(list(among))
    limit, keys = among[task]
    longest = 0.03 * limit**1.5  # so that the slots of each limit are in use at the same time
    seconds = choice.random() ** 3 * longest
    queue_name = choice.choice(["default"] * 4 + ["mail"])
    key = choice.randrange(keys) if keys else number // IN_A_ROW
    return task.using(queue_name=queue_name).bind(number, key, seconds)


def reach_the_limits(stage: Stage) -> None:
    """Wait until each limit and the rate were reached. Otherwise the run would show nothing.

    If one was exceeded, the check of the scenario says so at the end.
    """

    def reached() -> bool:
        crowds, starts = most_at_once(stage.accounts())
        is_full = all(len(crowds[path]) >= most for path, most in MOST.items())
        return is_full and starts[0.1] >= BURST

    end = time.monotonic() + PATIENCE
    while not reached():
        assert time.monotonic() < end, "the limits were not reached"
        time.sleep(0.5)  # it takes a while to compute


def most_at_once(accounts: Accounts) -> tuple[dict[str, list[Interval]], dict[float, int]]:
    """Return the most runs of a key at once, by the path of the task, and the most claims of a key with a
    rate in each window of time. A claim is charged even if its worker dies before the jobs begin.
    """
    calls = {pk: (path, key) for pk, path, key in Job.objects.values_list("pk", "task_path", "args__1")}
    intervals: dict[tuple[str, int], list[Interval]] = defaultdict(list)
    claims: dict[int, list[datetime]] = defaultdict(list)
    for run in sorted(accounts.runs, key=lambda run: run.claimed):
        path, key = calls[run.job]
        if path == tasks.rated.module_path:
            claims[key].append(datetime.fromtimestamp(run.claimed, UTC))
        elif path in MOST:  # and no job that a kill was aimed at
            begin, end = _claimed(run), _ended(run, accounts.faults)
            if end is not None and end >= begin:
                intervals[path, key].append(Interval(begin, end, run))
    crowds: dict[str, list[Interval]] = defaultdict(list)
    for (path, _), found in intervals.items():
        crowds[path] = max(crowds[path], crowd(found), key=len)
    starts = {
        window: max([0, *(most_in_window(each, timedelta(seconds=window)) for each in claims.values())])
        for window in WINDOWS
    }
    return crowds, starts


def crowd(intervals: Iterable[Interval]) -> list[Interval]:
    """Return those that overlap where most of them do."""
    most: list[Interval] = []
    now: list[Interval] = []
    for each in sorted(intervals, key=lambda one: one.begin):
        now = [*(one for one in now if one.end > each.begin), each]
        most = max(most, now, key=len)
    return most


def limits_held(stage: Stage, audit: Audit) -> list[str]:
    """Return where more jobs of a key ran, or started, than its limit allows."""
    crowds, starts = most_at_once(audit.accounts)
    return [
        *(
            f"more at once than the limit: {found}"
            for path, found in crowds.items()
            if len(found) > MOST[path]
        ),
        *(
            f"{count} starts of a rate within {window:g} s"
            for window, count in starts.items()
            if count > BURST + RATE * (window + LATE)
        ),
    ]


def _claimed(run: Run) -> float:
    """Return since when a job was certainly running for the queue: it may have waited for a thread."""
    return min(run.began, run.claimed_at + CLOCK)


def _ended(run: Run, faults: Iterable[Fault]) -> float | None:
    """Return until when a run was certainly running; None if it was killed, but it is not known when."""
    if run.ended is not None:
        return run.ended
    return min((fault.before for fault in faults if fault.hit(run)), default=None)


SCENARIOS += [
    Scenario(
        name="limits",
        promises=("limit", "limit-recovery", "rate"),
        faults=(kill_process, kill_process, kill_supervisor, reach_the_limits),
        processes=2,  # sixteen slots: more than the largest limit
        rate=150.0,
        backlog=300,
        mix=limited,
        check=limits_held,
    )
]
