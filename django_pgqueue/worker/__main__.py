"""``python -m django_pgqueue.worker``: a worker process, or the process of one isolated job."""

from __future__ import annotations

import sys

from django_pgqueue.worker.spawn import (
    ParentLink,
    die_with,
    leave_after,
    prepare_output,
    set_up_django,
    take_standard_input,
)


def _work() -> int:
    link = ParentLink(take_standard_input())
    try:
        assignment = link.receive()
        set_up_django()
        from django_pgqueue.worker.process import main

        return main(assignment, link)
    except BaseException as error:
        link.say(error=error)
        raise


def _run_isolated() -> int:
    set_up_django()
    from django_pgqueue.worker import isolation

    return isolation.main()


if __name__ == "__main__":
    kind, parent = sys.argv[1:]
    die_with(int(parent))
    prepare_output()
    leave_after(_run_isolated if kind == "isolated" else _work)
