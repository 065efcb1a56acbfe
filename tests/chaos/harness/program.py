"""The long form of the fault suite: scenarios for some minutes, from a seed, on a server of its own.

    python3 dev.py chaos --minutes 30 --seed 7
    python3 dev.py chaos --only "kills,rolling restart" --minutes 5
    python3 dev.py chaos --fuzz --minutes 30    # random calls in place of the scenarios

The minutes are divided among the scenarios. The seed decides which faults come, in which order, after which
pauses and on whom, and what is enqueued. What the processes are doing at a fault depends on the machine. If
a ledger does not balance, its files and the logs of the workers are kept, and the exit code is 1. At the end,
it prints how long recovery took from each kind of fault.
"""

# Every forked command imports this module as its main module, so it imports nothing of Django on top.
from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .scenario import Report, Scenario

ROOT = Path(__file__).resolve().parents[3]


def main(arguments: list[str]) -> int:
    """Run the scenarios, and print the report of each."""
    options = _parse(arguments)
    from example_project.embedded import ensure_server, remove_server

    server = ROOT / "var" / f"test-{os.getpid()}-chaos"
    try:
        os.environ["DATABASE_URL"] = ensure_server(server, durable=options.durable)
        os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
        import django
        from django.core.management import call_command

        django.setup()
        call_command("migrate", run_syncdb=True, verbosity=0)
        if options.fuzz:
            from ..fuzz.machine import fuzz

            return 0 if fuzz(options.seed, 60 * options.minutes) else 1
        chosen = _chosen(options.only)
        seconds = 60 * options.minutes / max(1, len(chosen))
        reports = {one.name: _perform(one, options.seed, seconds) for one in chosen}
    finally:
        remove_server(server)
    print("All figures:", *(line for report in reports.values() if report for line in report.recovered),
          sep="\n  ")  # fmt: skip
    failed = [name for name, report in reports.items() if report is None or report.problems]
    print(f"{len(chosen) - len(failed)} of {len(chosen)} ledgers are balanced (--seed {options.seed}).")
    for name in failed:
        print(f"NOT BALANCED: {name}")
    return 1 if failed else 0


def _parse(arguments: list[str]) -> argparse.Namespace:
    about, _, rest = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        prog="dev.py chaos", description=about, epilog=rest, formatter_class=argparse.RawTextHelpFormatter
    )
    add, new = parser.add_argument, random.randrange(2**32)
    add("--minutes", type=float, default=10.0, help="how long the faults go on (10)")
    add("--seed", type=int, default=new, help="repeats the random choices")
    add("--only", default="", metavar="NAMES", help="run these scenarios, separated by commas")
    add("--fuzz", action="store_true", help="make random calls, without workers")
    add("--durable", action="store_true", help="let the server wait for the disk (fsync)")
    return parser.parse_args(arguments)


def _chosen(names: str) -> list[Scenario]:
    """Return the scenarios with these names, or all, without those that this machine cannot run."""
    from ..scenarios import SCENARIOS

    wanted = [name.strip() for name in names.split(",") if name.strip()] or list(SCENARIOS)
    if unknown := [name for name in wanted if name not in SCENARIOS]:
        raise SystemExit(f"There is no scenario {unknown[0]!r}. There are: {', '.join(SCENARIOS)}.")
    lacking = {name: lacks for name in wanted if (lacks := SCENARIOS[name].lacks())}
    for name, lacks in lacking.items():
        print(f"SKIPPED: {name} needs {lacks}")
    return [SCENARIOS[name] for name in wanted if name not in lacking]


def _perform(scenario: Scenario, seed: int, seconds: float) -> Report | None:
    """Run one scenario on empty tables, and return its report; None if it has not come to its end."""
    from django.core.management import call_command

    from tests.support.commands import commands_in

    from .scenario import perform

    folder = ROOT / "var" / f"chaos-{os.getpid()}-{scenario.name.replace(' ', '-')}"
    folder.mkdir(parents=True)
    try:
        with commands_in(folder, prints_logs=False) as start:
            report = perform(scenario, start, folder, seed=seed, seconds=seconds)
    except Exception:  # the other scenarios are to run
        traceback.print_exc()
        print(f"{scenario.name}: NOT BALANCED, it did not come to its end (seed {seed}). See {folder}")
        return None
    finally:
        call_command("flush", interactive=False, verbosity=0)
    print(report, flush=True)
    if report.problems:
        print(f"  The ledger and the logs are in {folder}", flush=True)
    else:
        shutil.rmtree(folder)
    return report


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
