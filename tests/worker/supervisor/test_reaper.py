"""Reaping orphans. It runs in a separate process, because it would also reap the processes of other tests."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import os, subprocess, sys
from django_pgqueue.worker.supervisor.child import reap_orphans

reap_orphans(())  # there are no children
ended = [subprocess.Popen([sys.executable, "-c", f"raise SystemExit({code})"]) for code in (7, 8, 9)]
own, *others = ended
for process in ended:
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
reap_orphans({own.pid})
print(own.wait())
reap_orphans({own.pid})
for process in others:
    try:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG)
    except ChildProcessError:
        print("reaped")
    process.returncode = 0
running = subprocess.Popen(["sleep", "1000"])
reap_orphans(())  # no child has ended
print(running.poll())
running.kill()
print(running.wait())
"""


def test_orphans_are_reaped_and_our_own_keep_their_exit_code() -> None:
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert ended.stdout.split() == ["7", "reaped", "reaped", "None", "-9"], ended.stderr
