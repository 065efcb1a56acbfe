"""Read a file up to a maximum size and decode it to text, or raise an error that says what is wrong."""

from __future__ import annotations

import codecs
import io
import os
import stat
import tokenize
from dataclasses import dataclass
from pathlib import Path

from .failures import Gone, NotText, TooLarge, Unreadable

MAX_BYTES = 1024 * 1024

# The longer mark comes first, because the mark of UTF-32 begins with the mark of UTF-16.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


@dataclass(frozen=True, slots=True)
class Contents:
    """The bytes of a file, with the size and time of modification (nanoseconds) of the same version."""

    data: bytes
    size: int
    modified: int


def read(path: Path, limit: int = MAX_BYTES) -> Contents:
    """Read the file, at most `limit` bytes.

    Raises Gone, Unreadable or TooLarge. Any other OSError is considered temporary and is raised unchanged.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # opening a named pipe would block forever
            raise Gone(f"{path} is no longer a regular file")
        with path.open("rb") as file:
            info = os.fstat(file.fileno())
            data = file.read(limit + 1)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise Gone(f"{path} no longer exists") from error
    except PermissionError as error:
        raise Unreadable(f"This user has no permission to read {path}") from error
    if len(data) > limit:
        raise TooLarge(f"{path} has {max(info.st_size, len(data)):,} bytes; the limit is {limit:,} bytes")
    return Contents(data, info.st_size, info.st_mtime_ns)


def decode(data: bytes, *, python: bool = False) -> str:
    """Decode bytes as UTF-8, or with the encoding that a byte order mark or Python's coding cookie names.

    All line endings are converted to newlines. Raises NotText.
    """
    try:
        text = data.decode(_encoding(data, python=python))
        text.encode()  # some codecs produce lone surrogates, which PostgreSQL cannot store
    except (UnicodeError, LookupError, SyntaxError) as error:
        raise NotText(f"The file cannot be decoded: {error}") from error
    if "\0" in text:
        raise NotText(f"The file is binary: it has a NUL byte at position {data.index(0):,}")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _encoding(data: bytes, *, python: bool) -> str:
    for mark, encoding in _MARKS:
        if data.startswith(mark) and not (python and encoding == "utf-8-sig"):
            return encoding
    if python and b"\0" not in data:
        return tokenize.detect_encoding(io.BytesIO(data).readline)[0]
    return "utf-8"
