from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from example_project.search.discovery import MAX_PATH_BYTES, walk


def names(root: Path, **options: set[str]) -> list[str]:
    return [str(Path(found.path).relative_to(root)) for found in walk(root, **options).files]


def test_lists_files_of_all_folders_in_order_of_path(tmp_path: Path) -> None:
    for name in ("b.txt", "a/z.md", "a/deeper/x.py", "no_suffix"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    assert names(tmp_path) == ["a/deeper/x.py", "a/z.md", "b.txt", "no_suffix"]


def test_reports_size_and_time_of_modification(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("four")
    os.utime(tmp_path / "a.txt", ns=(0, 1_700_000_000_123_456_789))
    [found] = walk(tmp_path).files
    assert (found.size, found.modified) == (4, 1_700_000_000_123_456_789)


def test_an_empty_folder_has_no_files(tmp_path: Path) -> None:
    assert walk(tmp_path).files == []


def test_skips_and_counts_what_is_known_to_be_useless(tmp_path: Path) -> None:
    for folder in ("__pycache__", "a/.mypy_cache", ".git"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "inside.txt").write_text("not looked at")
    for name in ("a.PNG", "a/b.so", "a/kept.txt"):
        (tmp_path / name).write_text("")
    result = walk(tmp_path)
    assert [Path(found.path).name for found in result.files] == ["kept.txt"]
    assert result.skipped == {"cache folder": 2, "version-control folder": 1, "binary suffix": 2}


def test_a_root_that_is_itself_called_like_a_cache_is_walked(tmp_path: Path) -> None:
    (tmp_path / ".cache").mkdir()
    (tmp_path / ".cache/a.txt").write_text("asked for by name")
    assert names(tmp_path / ".cache") == ["a.txt"]


def test_suffixes_narrow_the_walk(tmp_path: Path) -> None:
    for name in ("a.py", "B.PY", "c.json", "d"):
        (tmp_path / name).write_text("")
    result = walk(tmp_path, suffixes={".py"})
    assert [Path(found.path).name for found in result.files] == ["B.PY", "a.py"]
    assert result.skipped == {"other suffix": 2}


def test_follows_links_to_files_but_not_to_folders(tmp_path: Path) -> None:
    (tmp_path / "real.txt").write_text("text")
    (tmp_path / "linked.txt").symlink_to(tmp_path / "real.txt")
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "broken").symlink_to(tmp_path / "nowhere")
    result = walk(tmp_path)
    assert [Path(found.path).name for found in result.files] == ["linked.txt", "real.txt"]
    assert result.skipped == {"link to a folder": 1, "not a regular file": 1}


def test_a_named_pipe_is_not_a_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.txt")
    assert walk(tmp_path).skipped == {"not a regular file": 1}


def test_a_name_that_is_not_utf8_is_skipped(tmp_path: Path) -> None:
    try:
        Path(os.fsdecode(bytes(tmp_path) + b"/caf\xe9.txt")).write_text("latin-1 name")
    except OSError:
        pytest.skip("this file system refuses such names")
    assert walk(tmp_path).skipped == {"name not UTF-8": 1}


def test_a_path_too_long_for_an_index_is_skipped(tmp_path: Path) -> None:
    deep = tmp_path
    while len(bytes(deep)) <= MAX_PATH_BYTES:
        deep /= "d" * 200
    deep.mkdir(parents=True)
    (deep / "a.txt").write_text("deep")
    assert walk(tmp_path).skipped == {"path too long": 1}


def test_an_unreadable_folder_is_counted_and_the_walk_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "open.txt").write_text("")
    scandir = os.scandir

    def refuse(path: str) -> Any:
        if path.endswith("secret"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    result = walk(tmp_path)
    assert [Path(found.path).name for found in result.files] == ["open.txt"]
    assert result.skipped == {"unreadable folder": 1}
