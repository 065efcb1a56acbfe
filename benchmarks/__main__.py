"""Compare this queue with others, with what the server can do at most, and with itself on its worst days.

    python3 dev.py bench                       all scenarios but the longest, this queue and others
    python3 dev.py bench drain latency         these scenarios
    python3 dev.py bench --peer procrastinate  with this peer only (--peer none: without any)
    python3 dev.py bench --full                all sizes, the long runs: some hours
    python3 dev.py bench figures --json FILE   the figures of the documentation, and the public harness
    python3 dev.py bench pages                 write the figures of docs/_static/performance into the pages
    python3 dev.py bench public                the phases of the public harness (--help for its options)
    python3 dev.py bench --json FILE           write every figure of every round, too
    python3 dev.py bench --plots FOLDER        draw a picture of each scenario, too

Each queue runs in an environment of its own, with pinned versions, and in a database of its own, on the same
durable server: the one that DATABASE_URL names, or one that the benchmark starts.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import pages, scenarios
from .contender import Contender, StuckError
from .contestants import OURS, PEERS
from .contestants.contract import CannotTakePartError
from .environments import CannotInstallError
from .plots import draw
from .public.driver import main as public, measure_all
from .report import as_json, commit, machine, show
from .scenario import Bench, Result, Scenario, Variant
from .server import describe, server_url

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


#: The options of the figures of the documentation, which others may replace: they take half an hour.
FIGURES = ("--seconds", "1.2", "--minutes", "31.5", "--phase-seconds", "5")
MOST_ROUNDS = 5


def main(arguments: Sequence[str]) -> None:
    """Run the scenarios that were chosen."""
    if arguments[:1] == ["public"]:
        public(arguments[1:])
    elif arguments[:1] == ["pages"]:
        pages.main(arguments[1:])
    else:
        measure(parse(arguments), arguments)


def measure(options: argparse.Namespace, arguments: Sequence[str]) -> None:
    """Measure the contestants, and write the figures after each scenario: a run may be stopped."""
    chosen = [scenarios.load(name) for name in options.scenarios or scenarios.NAMES]
    if not options.scenarios and not options.full:
        chosen = [scenario for scenario in chosen if not scenario.only_full]
    began = time.monotonic()
    server = server_url()
    about = describe_run(arguments, server)
    contenders, about["skipped"] = enter(contestants(chosen, options), server)
    about["contestants"] = {name: described(each) for name, each in contenders.items()}
    bench = Bench(contenders, options.seconds, options.full, server)
    results = [Result(scenario) for scenario in chosen]

    def write() -> None:
        if options.json:
            about["minutes"] = (time.monotonic() - began) / 60
            done = [result for result in results if result.rounds or result.failed]
            options.json.write_text(json.dumps(as_json(done, about), indent=1) + "\n")

    try:
        if options.phase_seconds:
            about["public"] = measure_all(["--phase-seconds", str(options.phase_seconds)])
            write()
        over = began + 60 * options.minutes if options.minutes else None
        for result in in_turn(results, bench, options, over) if over else one_by_one(results, bench, options):
            show(result)
            write()
        if options.plots:
            draw(as_json(results, about), options.plots)
    finally:
        bench.opened.close()
        for contender in contenders.values():
            contender.close()
    print(f"\n{(time.monotonic() - began) / 60:.0f} minutes")


def describe_run(arguments: Sequence[str], server: str) -> dict[str, Any]:
    """Return, and print, what the figures depend on."""
    about: dict[str, Any] = {
        "command": "python3 dev.py bench " + " ".join(arguments),
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "commit": commit(),
        "machine": machine(),
        "server": describe(server),
    }
    for key, value in (*about["machine"].items(), *about["server"].items()):
        print(f"{key}: {value}")
    return about


def described(contender: Contender) -> dict[str, Any]:
    """Return what the tables say about a contestant."""
    contestant = contender.contestant
    return {
        "configuration": contestant.configuration,
        "versions": [re.sub(r"\[.*?\]", "", each).replace("==", " ") for each in contestant.requirements],
        "service": contestant.service(),
    }


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the options, or print what is wrong with them and exit."""
    parser = argparse.ArgumentParser(
        prog="dev.py bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("scenarios", nargs="*", metavar="SCENARIO", help=", ".join(scenarios.NAMES))
    add("--peer", action="append", choices=[*PEERS, "none"], metavar="NAME",
        help=f"compare with this peer: {', '.join(PEERS)}, none")  # fmt: skip
    add("--full", action="store_true", help="all sizes and long runs")
    add("--json", type=Path, metavar="FILE", help="write all figures to this file")
    add("--plots", type=Path, metavar="FOLDER", help="draw a picture of each scenario")
    add("--rounds", type=int, help="rounds of each scenario (default: its own number)")
    add("--seconds", type=float, default=4.0, help="about how long one run takes (default 4)")
    add("--minutes", type=float, help="measure rounds of all scenarios in turn, as many as fit")
    add("--phase-seconds", type=float, metavar="S", help="first run the public harness with phases this long")
    options = parser.parse_args(arguments)
    if options.scenarios[:1] == ["figures"]:
        options = parser.parse_args([*FIGURES, *arguments[1:]])
        options.scenarios = [*(options.scenarios or scenarios.FIGURES)]
    for name in options.scenarios:
        if name not in scenarios.NAMES:
            parser.error(f"There is no scenario {name!r}. Choose from: {', '.join(scenarios.NAMES)}.")
    return options


def contestants(chosen: Sequence[Scenario], options: argparse.Namespace) -> list[str]:
    """Return the names of all that the chosen scenarios need, ours first."""
    peers = [name for name in options.peer or PEERS if name != "none"]
    wanted = [OURS]
    for scenario in chosen:
        wanted += [*scenario.contestants, *(peers if scenario.with_peers else ())]
    return list(dict.fromkeys(wanted))


def enter(names: Sequence[str], server: str) -> tuple[dict[str, Contender], dict[str, str]]:
    """Return the contestants that can run here, and why the others cannot. Ours must be able to."""
    contenders: dict[str, Contender] = {}
    skipped: dict[str, str] = {}
    for name in names:
        try:
            contenders[name] = Contender(name, server)
        except (CannotInstallError, CannotTakePartError, StuckError) as error:
            if name == OURS:
                sys.exit(f"{OURS} itself cannot run here, so there is nothing to compare: {error}")
            skipped[name] = str(error)
            print(f"skipped {name}: {error}")
    return contenders, skipped


def one_by_one(results: Sequence[Result], bench: Bench, options: argparse.Namespace) -> Iterator[Result]:
    """Measure all rounds of one scenario, then the next one."""
    for result in results:
        variants = list(result.scenario.variants(bench))
        for _ in range(options.rounds or result.scenario.rounds):
            run(result, variants, bench)
        yield result


def in_turn(
    results: Sequence[Result], bench: Bench, options: argparse.Namespace, over: float
) -> Iterator[Result]:
    """Measure one round of all scenarios, then the next, as long as each ends in time.

    A round takes about as long as the one before, which may have filled a table besides. What else the
    machine does changes from minute to minute, so the rounds of a scenario are spread over the whole time.
    """
    took: dict[str, float] = {}
    variants = {result.scenario.name: list(result.scenario.variants(bench)) for result in results}
    for _ in range(options.rounds or MOST_ROUNDS):
        for result in results:
            name, began = result.scenario.name, time.monotonic()
            if began + took.get(name, 0) < over:
                run(result, variants[name], bench)
                took[name] = time.monotonic() - began
                yield result


def run(result: Result, variants: Sequence[Variant], bench: Bench) -> None:
    """Measure one round of a scenario: all variants in turn."""
    for variant in variants:
        if variant.name not in result.failed:
            try:
                result.add(variant.name, variant.run())
            except Exception as error:  # the others go on
                result.failed[variant.name] = str(error) or repr(error)
            for contender in bench.contenders.values():
                contender.rest()


if __name__ == "__main__":
    # The workers' programs are found beside the Python that runs this.
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    # What was started ends also if this is asked to end.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    main(sys.argv[1:])
