"""`manage.py index_folder PATH`: add a document and a job for each new or changed text file in a folder."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from example_project.search.indexing import index_folders


class Command(BaseCommand):
    """Enqueues the jobs. `manage.py runqueueworker` runs them, and may be started before or after."""

    help = "Index the text files in a folder and its subfolders. `runqueueworker` runs the jobs."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("folders", metavar="PATH", nargs="+", type=Path, help="a folder of text files")
        parser.add_argument(
            "--suffix", action="append", metavar=".md", help="only files with this suffix; may be repeated"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        roots = [folder.expanduser().resolve() for folder in options["folders"]]
        for root in roots:
            if not root.is_dir():
                raise CommandError(f"{root} is not a folder.")
        suffixes = {f".{suffix.lower().lstrip('.')}" for suffix in options["suffix"] or ()} or None
        report = index_folders(roots, suffixes=suffixes)
        self.stdout.write(
            f"{report.new:,} new, {report.changed:,} changed, {report.unchanged:,} unchanged, "
            f"{report.removed:,} removed"
        )
        for reason, count in report.skipped.most_common():
            self.stdout.write(f"{count:,} skipped: {reason}")
        self.stdout.write(f"{len(report.job_ids):,} jobs enqueued in {report.seconds:.2f} s")
