"""The queues that take part, and how to run their adapters."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarks.environments import python_of

from .contract import Manifest

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Contestant:
    """A queue with an adapter."""

    name: str
    module: str
    manifest_file: Path
    requirements: tuple[str, ...] = ()  # of its own environment; none: it runs in the driver's

    @property
    def manifest(self) -> Manifest:
        """What the adapter says about itself before it starts."""
        return Manifest.load(self.manifest_file)

    def command(self) -> list[str]:
        """Return the command of the adapter. Install what it needs, or raise ``CannotInstallError``."""
        return [str(python_of(f"public-{self.name}", self.requirements)), "-m", self.module]


OURS = "django_pgqueue"
CONTESTANTS = {
    contestant.name: contestant
    for contestant in (
        Contestant(OURS, "benchmarks.public.adapter", HERE / "adapter.json"),
        Contestant(
            "procrastinate",
            "benchmarks.public.peers.procrastinate_adapter",
            HERE / "peers" / "procrastinate.json",
            ("procrastinate==3.10.0", "psycopg[binary]==3.3.9"),
        ),
        Contestant(
            "awa", "benchmarks.public.peers.awa_adapter", HERE / "peers" / "awa.json", ("awa-pg==0.6.9",)
        ),
    )
}
