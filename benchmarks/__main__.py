"""Compare this queue with others, with what the server can do at most, and with itself on its worst days.

    python3 dev.py bench                       the default set, within 30 minutes
    python3 dev.py bench drain latency         these scenarios
    python3 dev.py bench --peer procrastinate  with this peer only (--peer none: without any)
    python3 dev.py bench --full                all peers, all sizes, the long runs: some hours
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
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import scenarios
from .contender import Contender, StuckError
from .contestants import MORE_PEERS, OURS, PEERS
from .contestants.contract import CannotTakePartError
from .environments import CannotInstallError
from .plots import draw
from .public.driver import main as public
from .report import as_json, machine, show
from .scenario import Bench, Result, Scenario
from .server import describe, server_url

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str]) -> None:
    """Run the scenarios that were chosen."""
    if arguments[:1] == ["public"]:
        public(arguments[1:])
        return
    options = parse(arguments)
    chosen = [scenarios.load(name) for name in options.scenarios or scenarios.NAMES]
    if not options.scenarios and not options.full:
        chosen = [scenario for scenario in chosen if not scenario.only_full]
    began = time.monotonic()
    server = server_url()
    about: dict[str, Any] = {
        "command": "python3 dev.py bench " + " ".join(arguments),
        "machine": machine(),
        "server": describe(server),
    }
    for key, value in (*about["machine"].items(), *about["server"].items()):
        print(f"{key}: {value}")
    contenders, about["skipped"] = enter(contestants(chosen, options), server)
    results: list[Result] = []
    bench = Bench(contenders, options.seconds, options.full, server)
    try:
        for scenario in chosen:
            results.append(run(scenario, bench, options.rounds or scenario.rounds))
            show(results[-1])
            figures = as_json(results, about)
            if options.json:  # after each scenario: a run may be stopped
                options.json.write_text(json.dumps(figures, indent=2) + "\n")
        if options.plots:
            draw(figures, options.plots)
    finally:
        bench.opened.close()
        for contender in contenders.values():
            contender.close()
    print(f"\n{(time.monotonic() - began) / 60:.0f} minutes")


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the options, or print what is wrong with them and exit."""
    parser = argparse.ArgumentParser(
        prog="dev.py bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=", ".join(scenarios.NAMES))
    parser.add_argument("--peer", action="append", choices=[*PEERS, *MORE_PEERS, "none"], metavar="NAME",
        help=f"compare with this peer: {', '.join((*PEERS, *MORE_PEERS))}, none")  # fmt: skip
    parser.add_argument("--full", action="store_true", help="all peers, sizes and long runs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to this file")
    parser.add_argument("--plots", type=Path, metavar="FOLDER", help="draw a picture of each scenario")
    parser.add_argument("--rounds", type=int, help="rounds of each scenario (default: its own number)")
    parser.add_argument("--seconds", type=float, default=4.0, help="about how long one run takes (default 4)")
    options = parser.parse_args(arguments)
    for name in options.scenarios:
        if name not in scenarios.NAMES:
            parser.error(f"There is no scenario {name!r}. Choose from: {', '.join(scenarios.NAMES)}.")
    return options


def contestants(chosen: Sequence[Scenario], options: argparse.Namespace) -> list[str]:
    """Return the names of all that the chosen scenarios need, ours first."""
    peers = [*PEERS, *(MORE_PEERS if options.full else ())]
    if options.peer:
        peers = [name for name in options.peer if name != "none"]
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


def run(scenario: Scenario, bench: Bench, rounds: int) -> Result:
    """Measure all variants of a scenario in turn."""
    result = Result(scenario)
    variants = list(scenario.variants(bench))
    for _ in range(rounds):
        for variant in variants:
            if variant.name in result.failed:
                continue
            try:
                result.add(variant.name, variant.run())
            except StuckError as error:
                result.failed[variant.name] = str(error)
    return result


if __name__ == "__main__":
    # The workers' programs are found beside the Python that runs this.
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    main(sys.argv[1:])
