"""Take the guards out of the package, one at a time, and run the tests that should notice.

    python3 dev.py mutate                       # all mutations, within an hour
    python3 dev.py mutate finish "skip locked"  # those whose topic or name contains one of these texts

The mutations are in the files beside this program, one for each topic. Each is applied to a copy of the
checkout, which has a server of its own. If it changes SQL, the database of the tests is made anew. A mutation
that no test notices has survived: then a test is missing, or the guard is not needed. The exit code is 1 if
one has survived, or if its tests could not run.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from time import monotonic

from example_project.embedded import ensure_server, remove_server

ROOT = Path(__file__).resolve().parents[2]
LONGEST = 300.0  # seconds; tests that take longer hang, because of the mutation
LEFT_OUT = (".*", "var")


@dataclass(frozen=True)
class Mutation:
    """A change that removes a guarantee."""

    topic: str
    name: str  # the guarantee
    file: str  # in the package
    before: str
    after: str
    tests: list[str]  # files, or single tests as pytest names them

    def apply(self, root: Path) -> Path:
        """Change the file in a checkout, and return it. The text must be there once."""
        path = root / "django_pgqueue" / self.file
        text = path.read_text()
        if self.before == self.after or text.count(self.before) != 1:
            raise ValueError(f"{self.topic}: {self.name}: its text is {text.count(self.before)} times there")
        path.write_text(text.replace(self.before, self.after))
        return path


@dataclass
class Copy:
    """A copy of the checkout, in which one mutation at a time is tried."""

    root: Path
    url: str = field(init=False)  # of its server
    fits: bool = False  # whether the database of its tests is what the source makes

    def __post_init__(self) -> None:
        shutil.copytree(ROOT, self.root, ignore=shutil.ignore_patterns(*LEFT_OUT))
        self.url = ensure_server(self.root / "var" / "server", durable=False)

    def remove(self) -> None:
        """Stop the server, and delete everything."""
        remove_server(self.root / "var" / "server")
        shutil.rmtree(self.root)

    def attempt(self, mutation: Mutation) -> tuple[str, str]:
        """Return what became of a mutation, and by which test."""
        is_sql = mutation.file.startswith("sql/")
        try:
            path = mutation.apply(self.root)
        except ValueError:
            return "no place", ""
        try:
            output = self._test(mutation.tests, "--reuse-db" if self.fits and not is_sql else "--create-db")
        finally:
            shutil.copy2(ROOT / path.relative_to(self.root), path)
        self.fits = output is not None and not is_sql
        if output is None:
            return "killed", " (its tests hang)"
        if failed := re.search(r"^FAILED (\S+)", output, re.MULTILINE):
            return "killed", f" ({failed[1].rpartition('::')[2]})"
        if re.search(r"^\d+ passed(?!.* error)", output, re.MULTILINE):
            return "survived", ""
        # What does not even start proves nothing about the guard.
        return "broken", "\n" + "\n".join(output.splitlines()[-8:])

    def _test(self, tests: list[str], database: str) -> str | None:
        """Return what pytest prints; None if it does not end."""
        options = ["--rootdir", str(self.root), "-x", "-q", "--timeout=60", "--reuse-db", database]
        process: subprocess.Popen[str] = subprocess.Popen(
            [sys.executable, "-m", "pytest", *options, *tests],
            cwd=self.root,
            env={**os.environ, "PYTHONPATH": str(self.root), "DATABASE_URL": self.url},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            process_group=0,
        )
        try:
            output, _ = process.communicate(timeout=LONGEST)
            return str(output)
        except subprocess.TimeoutExpired:
            return None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def mutations() -> list[Mutation]:
    """Return all mutations."""
    return [
        Mutation(path.stem, name, **fields)
        for path in sorted(Path(__file__).parent.glob("*.toml"))
        for name, fields in tomllib.loads(path.read_text()).items()
    ]


def main(arguments: list[str]) -> int:
    """Apply the mutations in turn, and print what became of each."""
    parser = argparse.ArgumentParser(
        prog="dev.py mutate", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="texts in the topics or names of mutations")
    parser.add_argument(
        "--jobs", type=int, default=2, help="how many are tried at once (default: %(default)s)"
    )
    options = parser.parse_args(arguments)
    chosen = [
        each
        for each in mutations()
        if not options.names or any(text in f"{each.topic}: {each.name}" for text in options.names)
    ]
    home = ROOT / "var" / f"mutations-{os.getpid()}"
    free: SimpleQueue[Copy] = SimpleQueue()

    def attempt(mutation: Mutation) -> str:
        copy, began = free.get(), monotonic()
        try:
            what, why = copy.attempt(mutation)
        finally:
            free.put(copy)
        print(f"{what:8} {monotonic() - began:4.0f} s  {mutation.topic}: {mutation.name}{why}", flush=True)
        return what

    copies = []
    try:
        for number in range(options.jobs):
            copies.append(Copy(home / str(number)))
            free.put(copies[-1])
        with ThreadPoolExecutor(options.jobs) as threads:
            counts = Counter(threads.map(attempt, chosen))
    finally:
        for copy in copies:
            copy.remove()
        home.rmdir()
    print(", ".join(f"{what}: {count}" for what, count in counts.items()))
    return 0 if chosen and counts["killed"] == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
