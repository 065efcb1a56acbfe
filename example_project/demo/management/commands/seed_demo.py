"""``manage.py seed_demo``: data of a made-up shop, to look at the admin with."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from django.core.management.base import BaseCommand, CommandError

from example_project.demo.shop.seed import clear, keep_alive, seed, used_by

if TYPE_CHECKING:
    from argparse import ArgumentParser

BEAT_EVERY = 5.0  # seconds


class Command(BaseCommand):
    """Makes the data, unless other code uses the database."""

    help = "Fill the database with jobs of every kind, to try the admin; never in production."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--database", default="default", help="the alias (default: default)")
        parser.add_argument(
            "--rows", type=int, default=1_000_000, metavar="N", help="how many jobs (default: 1000000)"
        )
        parser.add_argument("--yes", action="store_true", help="also in a database that is in use")
        parser.add_argument("--clear", action="store_true", help="only remove what this command has made")
        parser.add_argument(
            "--stay", action="store_true", help="then send the heartbeats of its workers, until Ctrl-C"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        alias = options["database"]
        if options["clear"]:
            clear(alias)
            self.stdout.write("The data of the demonstration was removed.")
            return
        if options["rows"] < 1_000:
            raise CommandError("--rows must be at least 1000, so that there is something of everything.")
        if not options["yes"] and (users := list(used_by(alias))):
            raise CommandError(
                f"The database of {alias!r} is in use: {', and '.join(users)}. Use another database, or add"
                " --yes."
            )
        began = time.perf_counter()
        made = seed(alias, options["rows"])
        self.stdout.write(f"Made {made:,} jobs in {time.perf_counter() - began:.0f} s.")
        if options["stay"]:
            self.stdout.write("The workers stay alive until Ctrl-C.")
            try:
                while True:
                    keep_alive(alias)
                    time.sleep(BEAT_EVERY)
            except KeyboardInterrupt:
                return
