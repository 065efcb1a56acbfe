"""The test kit: run jobs in a test, look at what was enqueued, and let time pass.

The names are resolved on first use, as in ``django_pgqueue``, so that importing this package needs neither
settings nor models. What it does needs Django's test environment.
"""

from __future__ import annotations

TYPE_CHECKING = False  # set here so that ``typing`` need not be imported

__all__ = [
    "AttemptResult", "DummyBackend", "ImmediateBackend", "RunningWorker", "acall_task", "arun_jobs",
    "assert_enqueued", "assert_not_enqueued", "call_task", "dummy_jobs", "enqueued", "fake_job",
    "immediate_jobs", "reported_progress", "run_jobs", "run_maintenance", "running_worker", "travel",
]  # fmt: skip

if TYPE_CHECKING:
    from .assertions import assert_enqueued, assert_not_enqueued, enqueued
    from .backends import DummyBackend, ImmediateBackend
    from .calls import acall_task, call_task, fake_job
    from .databases import travel
    from .modes import dummy_jobs, immediate_jobs
    from .running import AttemptResult, arun_jobs, reported_progress, run_jobs, run_maintenance
    from .workers import RunningWorker, running_worker
else:
    from .. import _lazily

    __getattr__ = _lazily(globals(), {
        "assertions": "assert_enqueued assert_not_enqueued enqueued",
        "backends": "DummyBackend ImmediateBackend",
        "calls": "acall_task call_task fake_job",
        "databases": "travel",
        "modes": "dummy_jobs immediate_jobs",
        "running": "AttemptResult arun_jobs reported_progress run_jobs run_maintenance",
        "workers": "RunningWorker running_worker",
    })  # fmt: skip

    def __dir__():
        return sorted({*globals(), *__all__})
