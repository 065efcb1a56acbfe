"""Start and end worker processes: their environment, whether one has ended, and the end despite threads.

Where ``waitid`` exists, the state of a process can be read without reaping it. A process that has ended keeps
its id, and the id of its group, until ``Popen.wait``. macOS has ``waitid`` since Python 3.13. Before that,
``Popen`` and ``ps`` are used, and the id becomes free a moment earlier.
"""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from django.conf import Settings, UserSettingsHolder, settings
from django.utils.module_loading import import_string

from ... import conf
from ...formatting import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable

logger = get_logger(__name__)


#: Flags with which Python does not read the environment, in which a child finds the project's modules.
_DEAF = {"-I", "-E"}
START_WITHIN = 120.0  # seconds; a process that takes longer to load the project is killed
END_WITHIN = 30.0  # seconds; so is one that takes longer to exit after its work, or after its grace period
HAS_WAITID = hasattr(os, "waitid")
_HERE = str(Path.cwd())


def child_command(*arguments: str) -> list[str]:
    """Return the command of a process of this package, with the flags of this one (-O, -W, -X, -u)."""
    # multiprocessing passes them on by this function, too. It leaves out -u.
    given: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    flags = [flag for flag in given if flag not in _DEAF]
    if getattr(sys.stdout, "write_through", False):
        flags.append("-u")
    return [sys.executable, *flags, "-m", "django_pgqueue.worker", *arguments]


def prepare_output() -> list[str]:
    """Write what a task prints line by line, also into a pipe. Open the standard files that are closed, and
    return their names: output goes nowhere then, and no other file gets their numbers.
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
    return {**os.environ, "PYTHONPATH": path, _SETUP: setup_path(), **test_environment()}


def has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Return whether the process has ended, whether or not it was waited for."""
    if not HAS_WAITID:
        return process.poll() is not None
    return process.returncode is not None or _last_change(process.pid) in {
        os.CLD_EXITED,
        os.CLD_KILLED,
        os.CLD_DUMPED,
    }


def is_stopped(process: subprocess.Popen[bytes]) -> bool:
    """Return whether the process exists but is stopped until it gets SIGCONT."""
    if HAS_WAITID:
        return _last_change(process.pid) == os.CLD_STOPPED
    state = subprocess.run(
        ["ps", "-o", "state=", "-p", str(process.pid)], capture_output=True, text=True, check=False
    )
    return state.stdout.startswith("T")


def how_it_ended(code: int) -> str:
    """Describe the end of a process. ``code`` is that of ``Popen``: the exit code, or the negated signal."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:  # a real-time signal
        return f"signal {-code}"


def _last_change(pid: int) -> int | None:
    """Return the last state change of the process; None if there was none."""
    flags = os.WEXITED | os.WSTOPPED | os.WCONTINUED | os.WNOHANG | os.WNOWAIT
    try:
        found = os.waitid(os.P_PID, pid, flags)
    except ChildProcessError:  # other code has waited for it, so its exit code is lost
        return os.CLD_EXITED
    return None if found is None else found.si_code


# ----------------------------------------------------------------------------
# End a worker process even if a task has left threads behind.
#
# Python waits at exit for every thread that is not a daemon, without a limit. Here they get a few seconds.

LINGER = 3.0  # seconds; less than what the supervisor adds to the grace period before it kills


def leave_after(main: Callable[[], int]) -> NoReturn:
    """Call `main` and exit with its return code as ``sys.exit`` does, but no later than LINGER afterwards."""
    code = 1
    try:
        code = main()
    finally:
        timer = threading.Timer(LINGER, _force, [code])
        timer.daemon = True
        timer.start()
    sys.exit(code)


def _force(code: int) -> None:
    try:
        names = [thread.name for thread in threading.enumerate() if _holds_up(thread)]
        logger.warning(
            "this process does not wait any longer for %s",
            f"threads that its tasks have left running: {', '.join(names)}" if names else "its exit handlers",
        )
    finally:
        os._exit(code)


def _holds_up(thread: threading.Thread) -> bool:
    return not thread.daemon and thread is not threading.main_thread()


# ----------------------------------------------------------------------------
# Set up Django as the project does, which is not always with ``django.setup``.
#
# The path travels in an environment variable: it is needed before there are settings.

_SETUP = "PGQUEUE_SETUP"


def setup_path() -> str:
    """Return the path of what sets up Django in the processes that this one starts."""
    usual = "configurations.setup" if os.environ.get("DJANGO_CONFIGURATION") else "django.setup"
    return conf.current().setup or usual


def set_up_django() -> None:
    """Set up Django as the parent process has said, and enter the test environment if it is in it."""
    import_string(os.environ.pop(_SETUP, "django.setup"))()
    enter_test_environment()


def settings_module() -> str | None:
    """Return the module of the settings, also under ``override_settings``; None after
    ``settings.configure()``.
    """
    bool(settings.INSTALLED_APPS)  # which loads them
    holder: Any = vars(settings)["_wrapped"]
    while isinstance(holder, UserSettingsHolder):
        holder = holder.default_settings
    return holder.SETTINGS_MODULE if isinstance(holder, Settings) else None


# ----------------------------------------------------------------------------
# Set up Django's test environment in processes that a test starts: their tasks must not send real mail.
#
# Test runners call ``setup_test_environment`` in their own process; other processes use the mail backend of
# the settings. An environment variable passes this on, and is removed before a task could pass it on.

_VARIABLE = "PGQUEUE_TEST_ENVIRONMENT"


def test_environment() -> dict[str, str]:
    """Return the variables that put a process that we start in the test environment, if we are in it."""
    utils = sys.modules.get("django.test.utils")  # if it is not imported, this is not a test
    is_set_up = hasattr(getattr(utils, "_TestState", None), "saved_data")
    return {_VARIABLE: "1"} if is_set_up else {}


def enter_test_environment() -> None:
    """Enter the test environment if the parent process is in it. Call this right after Django's setup."""
    if os.environ.pop(_VARIABLE, None):
        from django.test.utils import setup_test_environment

        setup_test_environment()
