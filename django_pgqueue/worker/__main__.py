"""``python -m django_pgqueue.worker``: one worker process, as its supervisor starts it."""

from __future__ import annotations

import sys

import django

if __name__ == "__main__":
    django.setup()
    from django_pgqueue.worker.process import main

    sys.exit(main(sys.argv[1]))
