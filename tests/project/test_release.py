"""Releases: one version, one place of the addresses, what refuses a release, and the README on PyPI."""

from __future__ import annotations

import subprocess
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import django_pgqueue
from tests.support import release
from tests.support.release import ROOT, previous, problems

URLS: dict[str, str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-c", "safe.directory=*", "-c", "user.name=a", "-c", "user.email=a@b.c", *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


def test_the_changelog_begins_with_the_version() -> None:
    assert release.version() == django_pgqueue.__version__
    assert release.heading().split(" ")[0] == django_pgqueue.__version__


def test_the_section_of_a_release_is_short() -> None:
    """What users notice, and not a diary."""
    text = (ROOT / "CHANGELOG.md").read_text()
    for section in text.split("\n## ")[1:]:
        lines = section.rstrip().splitlines()
        assert len(lines) <= 30, lines[0]
        assert max(map(len, lines)) <= 128, lines[0]


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="an archive has no list of files")
def test_addresses_stand_in_one_place() -> None:
    for path in git(ROOT, "ls-files").split():
        if path != "pyproject.toml" and (ROOT / path).suffix in (".md", ".py", ".toml", ".yml", ".yaml"):
            text = (ROOT / path).read_text()
            assert [address for address in URLS.values() if address in text] == [], path


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout that is ready for its release."""
    (tmp_path / "django_pgqueue").mkdir()
    (tmp_path / "django_pgqueue" / "__init__.py").write_text('__version__ = "1.2.0"\n')
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## 1.2.0 (2026-12-01)\n\n## 1.1.0 (2026-11-01)\n")
    urls = "".join(f'{name} = "https://forge.example/{name}"\n' for name in release.ADDRESSES)
    (tmp_path / "pyproject.toml").write_text(f"[project.urls]\n{urls}")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "Release")
    return tmp_path


def test_an_upgrade_starts_from_the_last_tag_before_the_commit(checkout: Path) -> None:
    (checkout / "tests" / "chaos").mkdir(parents=True)
    (checkout / "tests" / "chaos" / "previous_release").write_text("HEAD^{/^Interface: }\n")
    git(checkout, "tag", "v1.2.0")
    assert previous(checkout) == "HEAD^{/^Interface: }", "its own tag is not the previous one"
    git(checkout, "commit", "--quiet", "--allow-empty", "--message", "The next one")
    assert previous(checkout) == "v1.2.0"
    git(checkout, "tag", "v1.3.0")
    assert previous(checkout) == "v1.2.0"


REFUSED: list[tuple[str, str, str, str]] = [
    ("django_pgqueue/__init__.py", '"1.2.0"', '"1.2"', "is '1.2', and not a version"),
    ("django_pgqueue/__init__.py", '"1.2.0"', '"1.3.0"', 'is "1.2.0 (2026-12-01)". Write "1.3.0 (<the d'),
    ("CHANGELOG.md", "1.2.0 (2026-12-01)", "1.2.0 (unreleased)", 'is "1.2.0 (unreleased)". Write "1.2.0 ('),
    ("pyproject.toml", "https://forge.example/Security", "", "no address Security in [project.urls]"),
    ("pyproject.toml", "https://forge.example/Repository", "https://...", "no address Repository"),
]


def test_a_release_is_possible_until_it_has_its_tag(checkout: Path) -> None:
    assert list(problems(checkout)) == []
    (missing,) = problems(checkout, tagged=True)
    assert missing == "The tag of this commit must be v1.2.0, the version. It is missing."
    git(checkout, "tag", "v1.2.0")
    assert list(problems(checkout, tagged=True)) == []
    (twice,) = problems(checkout)
    assert twice.startswith("The tag v1.2.0 exists already")


@pytest.mark.parametrize(("path", "old", "new", "message"), REFUSED)
def test_what_refuses_a_release(checkout: Path, path: str, old: str, new: str, message: str) -> None:
    file = checkout / path
    file.write_text(file.read_text().replace(old, new))
    found = list(problems(checkout))
    assert any(message in each for each in found), found
    assert f"There are changes that are not committed: {path}." in found
    git(checkout, "commit", "--quiet", "--all", "--message", "Commit it")
    assert len(list(problems(checkout))) == len(found) - 1


def test_the_readme_is_short_and_has_the_two_commands() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= 100
    assert [line.strip() for line in lines if "    python3 dev.py" in line] == [
        "python3 dev.py demo", "python3 dev.py test",
    ]  # fmt: skip


def test_links_of_the_readme_work_outside_of_the_repository() -> None:
    module: Any = import_module("hatch_build")
    text = '[a](docs/a.md#b) ![c](c.svg) <img src="docs/d.svg"> [e](https://e.example) [f](#f)'
    assert module.absolute(text, "https://forge.example/x/", "v1.2.0") == (
        "[a](https://forge.example/x/blob/v1.2.0/docs/a.md#b) ![c](https://forge.example/x/raw/v1.2.0/c.svg)"
        ' <img src="https://forge.example/x/raw/v1.2.0/docs/d.svg"> [e](https://e.example) [f](#f)'
    )
