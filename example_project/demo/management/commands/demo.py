"""`manage.py demo`: index real files with the example project, and show what happens."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from contextlib import ExitStack
from typing import Any

from django.core.management.base import BaseCommand
from django.urls import reverse

from example_project.demo.children import Child, only_one
from example_project.demo.closing import show_answers, show_health, show_summary
from example_project.demo.corpus import LIMIT
from example_project.demo.display import Screen
from example_project.demo.serving import USER, free_address, login, wait_for_answer, wait_for_ever
from example_project.demo.steady import SteadyLoad
from example_project.demo.story import Story
from example_project.demo.summary import summarize
from example_project.project.database import stop_own_server

WORKER = ("runqueueworker", "--processes", "2", "--threads", "1", "--grace", "5")


class Command(BaseCommand):
    """Runs the steps of the demonstration. Everything that it starts ends with it."""

    help = "Index the files of this Python with a real worker, show the progress, and search the files."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--serve", action="store_true", help="keep running with search page and admin")
        parser.add_argument("--port", type=int, help="port of the server (default: 8000, or any free port)")
        parser.add_argument("--files", type=int, default=LIMIT, help=f"file limit (default: {LIMIT})")

    def handle(self, *args: Any, **options: Any) -> None:
        sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]
        screen = Screen(sys.stdout)
        for number in (signal.SIGTERM, signal.SIGHUP):  # as with Ctrl-C, the child processes are ended
            signal.signal(number, lambda number, frame: sys.exit(128 + number))
        signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs of a shell ignore it
        try:
            with ExitStack() as stack:
                stack.enter_context(only_one())
                stack.callback(stop_own_server)
                self._tell(screen, stack, options)
        except KeyboardInterrupt:
            screen.say("\nStopped.")
            sys.exit(130)
        except BrokenPipeError:  # the reader of the pipe has closed it
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(141)

    def _tell(self, screen: Screen, stack: ExitStack, options: dict[str, Any]) -> None:
        story = Story(screen, max(1, options["files"]))
        story.prepare()
        report = story.enqueue()
        screen.title(f"manage.py {' '.join(WORKER)}")
        screen.fact("Worker", "starting its two processes, which takes a few seconds")
        worker = stack.enter_context(Child("worker", *WORKER))
        story.run(report, worker)
        show_summary(screen, summarize(report.job_ids[0], report.job_ids[-1]))
        story.check(report)
        story.index_again()
        show_answers(screen)
        show_health(screen)
        if options["serve"]:
            address = free_address(options["port"])
            server = stack.enter_context(Child("server", "runserver", "--noreload", address, debug=True))
            wait_for_answer(server, address)
            screen.title("Open in a browser")
            screen.fact("Console", f"http://{address}{reverse('admin:django_pgqueue_job_overview')}")
            screen.fact("Terminal", "python3 dev.py manage pgqueue")
            screen.fact("Search", f"http://{address}/")
            screen.fact("User", USER)
            screen.fact("Password", login())
            wait_for_ever(screen, SteadyLoad(), worker, server)
