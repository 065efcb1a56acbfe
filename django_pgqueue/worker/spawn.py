"""Start and end worker processes, link them to the one that has started them, and set up Django in them.

Where ``waitid`` exists, the state of a process can be read without reaping it. A process that has ended keeps
its id, and the id of its group, until ``Popen.wait``. macOS has ``waitid`` since Python 3.13. Before that,
``Popen`` and ``ps`` are used, and the id becomes free a moment earlier.
"""

from __future__ import annotations

import ctypes
import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from django.conf import Settings, UserSettingsHolder, settings
from django.utils.module_loading import import_string

from .. import conf
from ..formatting import get_logger

logger = get_logger(__name__)

_DEAF = {"-I", "-E"}  # with these, Python does not read the environment, in which a child finds modules
START_WITHIN = 120.0  # seconds; a process that takes longer to load the project is killed
END_WITHIN = 30.0  # seconds; so is one that takes longer to exit after its work, or after its grace period
HAS_WAITID = hasattr(os, "waitid")
_HERE = str(Path.cwd())


def start(kind: str, line: socket.socket, memory: int) -> subprocess.Popen[bytes]:
    """Start a process of this package, with the flags of this one (-O, -W, -X, -u). Its standard input is
    ``line``. It inherits ``memory``, a descriptor.

    It has its own group, so that Ctrl-C in the terminal does not reach it and only its parent signals it, and
    so that what its tasks have started ends with it.
    """
    # multiprocessing passes them on by this function, too. It leaves out -u.
    given: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    flags = [flag for flag in given if flag not in _DEAF]
    if getattr(sys.stdout, "write_through", False):
        flags.append("-u")
    return subprocess.Popen(
        [sys.executable, *flags, "-m", "django_pgqueue.worker", kind, str(os.getpid())],
        stdin=line.fileno(), env=child_environment(), pass_fds=[memory], process_group=0,
    )  # fmt: skip


def prepare_output() -> list[str]:
    """Write what a task prints line by line, also into a pipe. Open the standard files that are closed, and
    return their names: no other file gets their numbers.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            nowhere = os.open(os.devnull, os.O_RDWR)
            os.dup2(nowhere, number)  # which children inherit
            if nowhere != number:
                os.close(nowhere)
    closed = [name for name in ("stdout", "stderr") if getattr(sys, name) is None]
    for name in closed:
        setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - until the end
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)
    return closed


def child_environment() -> dict[str, str]:
    """Return our environment with the path on which this process finds the project's modules."""
    # An empty entry means the reader's working directory. A task may have changed ours in the meantime.
    path = os.pathsep.join(entry or _HERE for entry in sys.path)
    usual = "configurations.setup" if os.environ.get("DJANGO_CONFIGURATION") else "django.setup"
    given = {"PYTHONPATH": path, _SETUP: conf.current().setup or usual}
    utils = sys.modules.get("django.test.utils")  # if it is not imported, this is not a test
    if hasattr(getattr(utils, "_TestState", None), "saved_data"):
        given[_IN_TEST] = "1"
    return {**os.environ, **given}


def has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Return whether the process has ended, whether or not it was waited for."""
    if not HAS_WAITID or process.returncode is not None:
        return process.poll() is not None
    return _last_change(process.pid) in {os.CLD_EXITED, os.CLD_KILLED, os.CLD_DUMPED}


def is_stopped(process: subprocess.Popen[bytes]) -> bool:
    """Return whether the process exists but is stopped until it gets SIGCONT."""
    if HAS_WAITID:
        return _last_change(process.pid) == os.CLD_STOPPED
    command = ["ps", "-o", "state=", "-p", str(process.pid)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.startswith("T")


def how_it_ended(code: int) -> str:
    """Describe the end of a process. ``code`` is that of ``Popen``: the exit code, or the negated signal."""
    if code >= 0:
        return f"exit code {code}"
    names = {each.value: each.name for each in signal.Signals}  # real-time signals have none
    return f"signal {names.get(-code, -code)}"


def _last_change(pid: int) -> int | None:
    """Return the last state change of the process; None if there was none."""
    flags = os.WEXITED | os.WSTOPPED | os.WCONTINUED | os.WNOHANG | os.WNOWAIT
    try:
        found = os.waitid(os.P_PID, pid, flags)
    except ChildProcessError:  # other code has waited for it, so its exit code is lost
        return os.CLD_EXITED
    return None if found is None else found.si_code


LINGER = 3.0  # seconds; less than what the supervisor adds to the grace period before it kills


def leave_after(main: Callable[[], int]) -> NoReturn:
    """Call `main` and exit as ``sys.exit`` does, but within LINGER: Python would wait for tasks' threads."""
    code = 1

    def force() -> None:
        try:
            left = {*threading.enumerate()} - {threading.main_thread()}
            names = ", ".join(thread.name for thread in left if not thread.daemon)
            what = f"threads that its tasks have left running: {names}" if names else "its exit handlers"
            logger.warning("this process does not wait any longer for %s", what)
        finally:
            os._exit(code)

    try:
        code = main()
    finally:
        timer = threading.Timer(LINGER, force)
        timer.daemon = True
        timer.start()
    sys.exit(code)


# The link between a process and the one that started it: a pair of sockets, and on Linux a death signal. The
# supervisor sends one line on it, the assignment, and its end shows that the supervisor is gone. The worker
# process sends one message when it ends: that it ended as intended, or which error ended it. Its exit code
# alone is not enough: a task that calls ``os._exit(0)`` ends the process as well, and only the process itself
# can name a module that failed to import.

LONGEST_CAUSE = 1_000  # characters
PR_SET_PDEATHSIG = 1  # of linux/prctl.h


class Farewell(NamedTuple):
    """The last message of a process; empty if it could not send one."""

    code: int | None = None  # with which it intended to end after its work was done
    cause: str = ""  # the exception that ended it
    interrupted: int = 0  # jobs that had not finished
    executed: int = 0  # jobs that it has run


class ParentLink:
    """A worker process's end of the link."""

    def __init__(self, file: int) -> None:
        self.file = file
        self._owner = os.getpid()
        self._spoken = False

    def receive(self) -> str:
        """Return the line that the supervisor has sent."""
        with os.fdopen(self.file, encoding="utf-8", closefd=False) as lines:
            return lines.readline()

    def wait_for_end(self) -> None:
        """Return when the supervisor is gone."""
        with suppress(OSError):  # it ended before it had read our message
            while os.read(self.file, 1024):
                pass

    def say(self, code: int | None = None, error: BaseException | None = None, **jobs: int) -> None:
        """Report how this process ends: with an exit code after its work, or because of an exception. This
        counts once, and only in this process: one that a task has forked must not send anything. ``jobs``:
        the numbers in ``Farewell``.
        """
        if os.getpid() != self._owner or self._spoken:
            return
        self._spoken = True
        cause = "" if error is None else " ".join("".join(traceback.format_exception_only(error)).split())
        with suppress(OSError):  # no parent listens
            os.write(self.file, json.dumps(Farewell(code, cause[:LONGEST_CAUSE], **jobs)).encode())


def last_words(line: socket.socket) -> Farewell | None:
    """Return the last message of the process at the other end; None if it has not sent one."""
    # This must not wait: a process that it has started may hold its end open.
    with suppress(OSError, ValueError):
        return Farewell(*json.loads(line.recv(65536, socket.MSG_PEEK | socket.MSG_DONTWAIT)))
    return None


def take_standard_input() -> int:
    """Move the current standard input to a new descriptor and return it. Standard input is empty afterwards:
    a program that a task starts, such as ffmpeg, must not read what is meant for this process.
    """
    taken = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return taken


def die_with(parent: int) -> None:
    """On Linux, have this process killed when ``parent``, the process that started it, ends.

    Call this before anything that takes time. The kernel ties it to the *thread* of the parent that started
    this process, so that thread must live as long as the parent does. Processes of tasks do not inherit it.
    """
    if sys.platform != "linux":
        return
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL))
    except (OSError, AttributeError):  # a libc without prctl
        return
    # Race: the parent may have died before that call, so that this process already has another parent.
    if os.getppid() != parent:
        os._exit(1)


# Set up Django as the project does, which is not always with ``django.setup``, and as its parent process has.
# The path travels in an environment variable: it is needed before there are settings, like whether a test
# has started the process, as test runners call ``setup_test_environment`` only in their own: its tasks must
# not send real mail. The variables are removed before a task could pass them on.

_SETUP = "PGQUEUE_SETUP"
_IN_TEST = "PGQUEUE_TEST_ENVIRONMENT"


def set_up_django() -> None:
    """Set up Django as the parent process has said, and enter the test environment if it is in it."""
    import_string(os.environ.pop(_SETUP, "django.setup"))()
    if os.environ.pop(_IN_TEST, None):
        from django.test.utils import setup_test_environment

        setup_test_environment()


def settings_module() -> str | None:
    """Return the module of the settings; None after ``settings.configure()``."""
    bool(settings.INSTALLED_APPS)  # which loads them
    holder: Any = vars(settings)["_wrapped"]
    while isinstance(holder, UserSettingsHolder):
        holder = holder.default_settings
    return holder.SETTINGS_MODULE if isinstance(holder, Settings) else None
