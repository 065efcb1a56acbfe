"""``python -m django_pgqueue.worker``: a worker process, or the process of one isolated job."""

from __future__ import annotations

import sys

from django_pgqueue.worker import spawn


def _work() -> int:
    link = spawn.ParentLink(spawn.take_standard_input())
    try:
        assignment = link.receive()
        spawn.set_up_django()
        from django_pgqueue.worker.process import main

        return main(assignment, link)
    except BaseException as error:
        link.say(error=error)
        raise


def _run_isolated() -> int:
    spawn.set_up_django()
    from django_pgqueue.worker import isolation

    return isolation.main()


if __name__ == "__main__":
    kind, parent = sys.argv[1:]
    spawn.die_with(int(parent))
    spawn.prepare_output()
    spawn.leave_after(_run_isolated if kind == "isolated" else _work)
