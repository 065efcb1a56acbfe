"""What a release needs, and its rehearsal: ``python3 dev.py release check`` and ``release rehearse``.

`RELEASING.md` has the steps. The check finds all problems at once. The rehearsal takes the steps in a clone
that is thrown away: it fills in what is missing there, commits, tags, builds, and upgrades from the tag.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: The addresses in ``[project.urls]`` of ``pyproject.toml``, which stand nowhere else. The last one is where
#: vulnerabilities are reported: a page, or ``mailto:``.
ADDRESSES = ("Repository", "Documentation", "Security")
_ADDRESS = re.compile(r"https://[\w-]+(\.[\w-]+)+(/\S*)?|mailto:\S+@\S+")
_VERSION = re.compile(r"\d+\.\d+\.\d+((a|b|rc)\d+)?")
_HEADING = re.compile(r"^## (.*)$", re.MULTILINE)


def version(root: Path = ROOT) -> str:
    """Return the version, which only ``django_pgqueue/__init__.py`` contains."""
    text = (root / "django_pgqueue" / "__init__.py").read_text()
    (found,) = re.findall(r'^__version__ = "(.*)"$', text, re.MULTILINE)
    return str(found)


def heading(root: Path = ROOT) -> str:
    """Return the first heading of a release in the changelog, such as "0.1.0 (2026-12-01)"."""
    found = _HEADING.search((root / "CHANGELOG.md").read_text())
    return found[1] if found else ""


def problems(root: Path = ROOT, *, tagged: bool = False) -> Iterator[str]:
    """Yield what prevents a release from this checkout. ``tagged``: it has its tag already."""
    number = version(root)
    if not _VERSION.fullmatch(number):
        yield f"__version__ in django_pgqueue/__init__.py is {number!r}, and not a version such as '0.1.0'."
    if not re.fullmatch(rf"{re.escape(number)} \(\d{{4}}-\d\d-\d\d\)", heading(root)):
        yield f'The first release in CHANGELOG.md is "{heading(root)}". Write "{number} (<the date>)".'
    urls = tomllib.loads((root / "pyproject.toml").read_text())["project"].get("urls", {})
    for name in ADDRESSES:
        if not _ADDRESS.fullmatch(urls.get(name, "")):
            yield f'pyproject.toml has no address {name} in [project.urls]: add {name} = "https://...".'
    if changed := _git(root, "status", "--porcelain"):
        yield f"There are changes that are not committed: {', '.join(changed.split()[1::2])}."
    tag, tags = f"v{number}", _git(root, "tag", "--points-at", "HEAD").split()
    if tagged and tag not in tags:
        yield f"The tag of this commit must be {tag}, the version. It is {', '.join(tags) or 'missing'}."
    if not tagged and _git(root, "tag", "--list", tag):
        yield f"The tag {tag} exists already: choose the next version in django_pgqueue/__init__.py."


def previous(root: Path = ROOT) -> str:
    """Return what names the previous release in Git: its tag. Until there is one, what a file names."""
    # The commit of a release has its own tag, and is upgraded from the tag before.
    try:
        return _git(root, *"describe --tags --abbrev=0 --match v[0-9]* HEAD^".split())
    except subprocess.CalledProcessError:
        return (root / "tests" / "chaos" / "previous_release").read_text().strip()


def rehearse(upgrade: bool) -> None:
    """Take the steps of a release in a clone of the last commit."""
    with tempfile.TemporaryDirectory(prefix="release-") as folder:
        clone = Path(folder) / "clone"
        _git(ROOT, "clone", "--quiet", "--no-hardlinks", str(ROOT), str(clone))
        tag = f"v{version(clone)}"
        print(f"Rehearsing {tag} in {clone}")
        _git(clone, "tag", "--delete", tag) if _git(clone, "tag", "--list", tag) else None
        _fill_in(clone)
        _commit(clone, "Release")
        if found := [*problems(clone)]:
            sys.exit("\n".join(found))
        _git(clone, *_AUTHOR, "tag", "--annotate", tag, "--message", tag)
        if found := [*problems(clone, tagged=True)]:
            sys.exit("\n".join(found))
        _python(clone, "-m", "build", "--outdir", "dist")
        _python(clone, "-m", "twine", "check", "--strict", *map(str, (clone / "dist").iterdir()))
        _commit(clone, "The first commit after it")
        if (found_tag := previous(clone)) != tag:
            sys.exit(f"The next upgrade would start from {found_tag}, and not from {tag}.")
        if upgrade:
            options = ["-n", "0", "-m", "chaos", "-k", "upgrade or released"]
            _python(clone, "-m", "pytest", *options, "tests/chaos")
    print(f"The rehearsal of {tag} has passed. Nothing was kept.")


def _fill_in(clone: Path) -> None:
    """Write what the owner has not written yet."""
    project, changelog = clone / "pyproject.toml", clone / "CHANGELOG.md"
    text, urls = project.read_text(), tomllib.loads(project.read_text())["project"].get("urls", {})
    lines = [f'{name} = "https://dj-pgqueue.example/{name}"' for name in ADDRESSES if name not in urls]
    project.write_text(text.replace("[project.urls]\n", "\n".join(["[project.urls]", *lines, ""])))
    dated = f"## {version(clone)} ({datetime.now(UTC):%Y-%m-%d})"
    changelog.write_text(_HEADING.sub(dated, changelog.read_text(), count=1))


_AUTHOR = ("-c", "user.name=Rehearsal", "-c", "user.email=rehearsal@dj-pgqueue.example")


def _commit(clone: Path, message: str) -> None:
    _git(clone, *_AUTHOR, "commit", "--quiet", "--all", "--allow-empty", "--message", message)


def _git(root: Path, *arguments: str) -> str:
    # The files may belong to another user, as in a container.
    command = ["git", "-c", "safe.directory=*", *arguments]
    return subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout.strip()


def _python(clone: Path, *arguments: str) -> None:
    print("python", *arguments, flush=True)
    subprocess.run([sys.executable, *arguments], cwd=clone, check=True)


def main(arguments: list[str] | None = None) -> None:
    """Run the command. Exit with 1 if a release is not possible."""
    parser = argparse.ArgumentParser(prog="dev.py release", description=__doc__)
    parser.add_argument("step", choices=["check", "rehearse"])
    parser.add_argument("--tagged", action="store_true", help="the commit has its tag (in the workflow)")
    parser.add_argument(
        "--no-upgrade", action="store_true", help="rehearse without the fault suite's upgrade"
    )
    given = parser.parse_args(arguments)
    if given.step == "rehearse":
        rehearse(upgrade=not given.no_upgrade)
    elif found := [*problems(tagged=given.tagged)]:
        sys.exit("\n".join(["Not ready for a release:", *(f"- {each}" for each in found)]))
    else:
        print(f"Ready: version {version()}, {heading()}.")


if __name__ == "__main__":
    main()
