"""From a path to text: read a file's bytes within a limit and decode them, or say for good why not."""

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

# The longer mark first: that of UTF-32 begins with that of UTF-16.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


@dataclass(frozen=True, slots=True)
class Contents:
    """The bytes of a file, with size and time of modification (nanoseconds) of that very version."""

    data: bytes
    size: int
    modified: int


def read(path: Path, limit: int = MAX_BYTES) -> Contents:
    """Read the file, at most `limit` bytes.

    Raises Gone, Unreadable or TooLarge; any other OSError is taken for transient and passes through.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # opening a named pipe would block for ever
            raise Gone(f"{path} is not a regular file any more")
        with path.open("rb") as file:
            info = os.fstat(file.fileno())
            data = file.read(limit + 1)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise Gone(f"{path} is gone") from error
    except PermissionError as error:
        raise Unreadable(f"{path} may not be read by this user") from error
    if len(data) > limit:
        raise TooLarge(f"{path} has {max(info.st_size, len(data)):,} bytes, the limit is {limit:,}")
    return Contents(data, info.st_size, info.st_mtime_ns)


def decode(data: bytes, *, python: bool = False) -> str:
    """Text of UTF-8, of what a byte order mark says, or, in Python source, of what the coding cookie says.

    Line ends become newlines. Raises NotText.
    """
    try:
        text = data.decode(_encoding(data, python=python))
        text.encode()  # some codecs make lone surrogates, which PostgreSQL cannot store
    except (UnicodeError, LookupError, SyntaxError) as error:
        raise NotText(f"cannot be decoded: {error}") from error
    if "\0" in text:
        raise NotText(f"binary: has a NUL byte at position {data.index(0):,}")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _encoding(data: bytes, *, python: bool) -> str:
    for mark, encoding in _MARKS:
        if data.startswith(mark) and not (python and encoding == "utf-8-sig"):
            return encoding
    if python and b"\0" not in data:
        return tokenize.detect_encoding(io.BytesIO(data).readline)[0]
    return "utf-8"
