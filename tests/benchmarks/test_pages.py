"""The tables of the pages are those of the file of a run, and nothing else writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import pages
from benchmarks.contestants import PEERS, load
from benchmarks.scenarios import FIGURES, NAMES, load as load_scenario

PUBLIC: dict[str, Any] = {"contestants": {"ours": {"parts": {}}}}


def figures(rounds: dict[str, dict[str, list[dict[str, float]]]], **about: Any) -> pages.Figures:
    scenarios = [{"name": name, "rounds": each} for name, each in rounds.items()]
    contestants = {
        name: {"configuration": load(name).configuration, "versions": [f"{name} 1.0"], "service": ""}
        for name in ("django_pgqueue", *PEERS)
    }
    return pages.Figures({"scenarios": scenarios, "contestants": contestants, "skipped": {}, **about})


@pytest.mark.parametrize("path", pages.PAGES, ids=lambda path: path.name)
def test_each_table_is_that_of_the_file(path: Path) -> None:
    text = path.read_text()
    assert pages.BLOCK.search(text)
    run = pages.Figures(json.loads(pages.FIGURES.read_text()))
    assert pages.updated(text, run) == text, "run: python3 dev.py bench pages"


def test_what_tables_show() -> None:
    measured = figures(
        {
            "drain": {"django_pgqueue": [{"jobs/s": 1000}, {"jobs/s": 5000}, {"jobs/s": 3000}]},
            "drain-10": {"django_pgqueue": [{"jobs/s": 1.2345}]},
            "spread": {"50 queues": [{"jobs/s": 9}, {"jobs/s": 90}], "plain": [{"jobs/s": 10}] * 2},
        },
        skipped={"celery": "there is no rabbitmq-server"},
    )
    failed = {"name": "drain", "rounds": {}, "failed": {"oban": "a worker ended\nlog"}}
    measured.run["scenarios"].append(failed)
    rows = pages.lengths(measured).splitlines()
    assert "| **django_pgqueue** | default | 3,000 | - | 1.23 | - |" in rows, "the median, and dashes"
    assert "|  | best | - | - | - | - |" in rows
    assert len(rows) == 2 + 2 * len(pages.QUEUES) + 1
    assert "| jobs of 50 queues | 4.95 |" in pages.bad_days(measured), "ratios are those of the same round"
    assert "celery was left out: there is no rabbitmq-server" in pages.contestants(measured)
    assert "oban failed in `drain`: a worker ended." in pages.contestants(measured)


def test_only_blocks_change() -> None:
    text = "Before.\n\n<!-- figures: history -->\nold\n<!-- end figures -->\n\nAfter.\n"
    new = pages.updated(text, figures({}))
    assert (new.startswith("Before.\n\n<!-- figures: history -->\n| Queue |"), "old" in new) == (True, False)
    assert new.endswith("<!-- end figures -->\n\nAfter.\n")
    assert pages.updated(new, figures({})) == new


def test_each_figure_of_a_table_is_measured_by_the_set() -> None:
    """A name of a scenario that does not exist would be a dash for ever."""
    assert set(FIGURES) <= set(NAMES)
    assert {scenario for _, scenario, _, _ in pages.BAD_DAYS} <= set(FIGURES)
    asked: set[str] = set()

    class Asked(pages.Figures):
        def values(self, scenario: str, variant: str, figure: str) -> list[float]:
            asked.add(scenario)
            return []

    empty = Asked({**figures({}).run, "public": PUBLIC})
    for name, block in pages.BLOCKS.items():
        if name != "run":
            block(empty)
    assert asked == set(FIGURES)


def test_every_peer_has_a_name_in_the_tables() -> None:
    assert {name.removesuffix("-best") for name in PEERS} == {*pages.QUEUES}
    assert all(load_scenario(name).name == name for name in FIGURES)


def test_figures_of_a_single_round_are_not_written(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    rounds = {"twice": [{"rate": 1.0}, {"rate": 2.0}], "once": [{"rate": 1.0}]}
    file.write_text(json.dumps({"scenarios": [{"rounds": rounds}]}))
    before = pages.FIGURES.read_text()
    with pytest.raises(SystemExit, match="only one round of some scenarios"):
        pages.main([str(file)])
    assert pages.FIGURES.read_text() == before
