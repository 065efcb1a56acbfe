"""Find the files in a folder that should get a job.

Files that are known to be useless (caches, version-control folders, binary suffixes) are skipped and counted
here. A job that fails later therefore points to an unexpected problem.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Container
from dataclasses import dataclass, field
from pathlib import Path, PurePath

# fmt: off
CACHES = frozenset({
    "__pycache__", ".cache", ".eggs", ".hypothesis", ".mypy_cache", ".nox", ".pytest_cache", ".pytype",
    ".ruff_cache", ".tox",
})
VERSION_CONTROL = frozenset({
    ".bzr", ".git", ".hg", ".jj", ".pijul", ".sl", ".svn", "CVS", "_darcs",
})
BINARY_SUFFIXES = frozenset({
    ".7z", ".a", ".avi", ".avif", ".bin", ".bmp", ".bz2", ".class", ".dat", ".db", ".deb", ".dll", ".dmg",
    ".doc", ".docx", ".dylib", ".eot", ".exe", ".flac", ".gif", ".gmo", ".gz", ".ico", ".icns", ".img",
    ".iso", ".jar", ".jpeg", ".jpg", ".lib", ".lz4", ".lzma", ".mkv", ".mo", ".mov", ".mp3", ".mp4", ".o",
    ".obj", ".odp", ".ods", ".odt", ".ogg", ".otf", ".parquet", ".pdf", ".pickle", ".pkl", ".png", ".ppt",
    ".pptx", ".pyc", ".pyd", ".pyo", ".rar", ".rpm", ".so", ".sqlite", ".sqlite3", ".tar", ".tgz", ".tif",
    ".tiff", ".ttc", ".ttf", ".wasm", ".wav", ".webm", ".webp", ".whl", ".woff", ".woff2", ".xls", ".xlsx",
    ".xz", ".zip", ".zst",
})
# fmt: on
MAX_PATH_BYTES = 2000  # PostgreSQL refuses index entries of more than about 2,700 bytes


@dataclass(frozen=True, slots=True)
class Found:
    """A file in a folder. `modified` is its time of modification in nanoseconds."""

    path: str
    size: int
    modified: int


@dataclass(slots=True)
class Walk:
    """The files that were found, ordered by path, and the number of skipped files for each reason."""

    files: list[Found] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)


def walk(root: Path, *, suffixes: Container[str] | None = None) -> Walk:
    """List the regular files under `root`, which must be a folder.

    `suffixes` (lower case, with the dot) limits the walk to files with these suffixes. Links to folders are
    not followed, so that the walk cannot run in a loop. Links to files are followed, because some installers
    create trees of such links.
    """
    result = Walk()
    folders = [str(root.absolute())]
    while folders:
        try:
            with os.scandir(folders.pop()) as listing:
                entries = list(listing)
        except PermissionError:
            result.skipped["unreadable folder"] += 1
            continue
        except FileNotFoundError:
            continue  # removed since its parent was listed
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if reason := _why_skip_folder(entry.name):
                    result.skipped[reason] += 1
                else:
                    folders.append(entry.path)
            elif reason := _why_skip_file(entry, suffixes):
                result.skipped[reason] += 1
            else:
                _add(result, entry)
    result.files.sort(key=lambda found: found.path)
    return result


def _why_skip_folder(name: str) -> str:
    if name in CACHES:
        return "cache folder"
    return "version-control folder" if name in VERSION_CONTROL else ""


def _why_skip_file(entry: os.DirEntry[str], suffixes: Container[str] | None) -> str:
    suffix = PurePath(entry.name).suffix.lower()
    if not entry.is_file():
        return "link to a folder" if entry.is_dir() else "not a regular file"
    if suffix in BINARY_SUFFIXES:
        return "binary suffix"
    if suffixes is not None and suffix not in suffixes:
        return "other suffix"
    try:
        too_long = len(entry.path.encode()) > MAX_PATH_BYTES
    except UnicodeEncodeError:  # bytes in the name that are not UTF-8 are represented by lone surrogates
        return "name not UTF-8"
    return "path too long" if too_long else ""


def _add(result: Walk, entry: os.DirEntry[str]) -> None:
    try:
        info = entry.stat()
    except FileNotFoundError:
        return  # removed since the folder was listed
    result.files.append(Found(entry.path, info.st_size, info.st_mtime_ns))
