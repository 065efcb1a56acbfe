from __future__ import annotations

import codecs
import os
from pathlib import Path

import pytest

from example_project.search.failures import Gone, NotText, TooLarge, Unreadable
from example_project.search.reading import decode, read


def test_reads_bytes_with_the_size_and_time_of_that_version(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"words")
    os.utime(tmp_path / "a.txt", ns=(0, 1_700_000_000_123_456_789))
    contents = read(tmp_path / "a.txt")
    assert (contents.data, contents.size, contents.modified) == (b"words", 5, 1_700_000_000_123_456_789)


def test_a_file_of_just_the_limit_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"x" * 10)
    assert len(read(tmp_path / "a.txt", limit=10).data) == 10


def test_a_file_over_the_limit_is_too_large_and_says_by_how_much(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"x" * 2000)
    with pytest.raises(TooLarge, match="has 2,000 bytes; the limit is 10"):
        read(tmp_path / "a.txt", limit=10)


def test_a_missing_file_is_gone(tmp_path: Path) -> None:
    with pytest.raises(Gone, match=r"a\.txt no longer exists"):
        read(tmp_path / "a.txt")


def test_a_file_whose_folder_became_a_file_is_gone(tmp_path: Path) -> None:
    (tmp_path / "folder").write_text("now a file")
    with pytest.raises(Gone):
        read(tmp_path / "folder" / "a.txt")


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_what_is_no_regular_file_any_more_is_gone(tmp_path: Path, make) -> None:  # type: ignore[no-untyped-def]
    make(tmp_path / "a.txt")
    with pytest.raises(Gone, match="no longer a regular file"):
        read(tmp_path / "a.txt")


def test_a_forbidden_file_is_unreadable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.txt").write_text("secret")

    def refuse(self: Path, mode: str) -> None:  # root can read every file, so chmod would have no effect
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(Unreadable, match="no permission to read"):
        read(tmp_path / "a.txt")


def test_a_disk_error_passes_through_for_a_retry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.txt").write_text("on a bad disk")

    def fail(self: Path, mode: str) -> None:
        raise OSError(5, "Input/output error", str(self))

    monkeypatch.setattr(Path, "open", fail)
    with pytest.raises(OSError, match="Input/output error"):
        read(tmp_path / "a.txt")


@pytest.mark.parametrize(
    "data",
    [
        "naïve".encode(),
        codecs.BOM_UTF8 + "naïve".encode(),
        codecs.BOM_UTF16_LE + "naïve".encode("utf-16-le"),
        codecs.BOM_UTF16_BE + "naïve".encode("utf-16-be"),
        codecs.BOM_UTF32_LE + "naïve".encode("utf-32-le"),
        codecs.BOM_UTF32_BE + "naïve".encode("utf-32-be"),
    ],
)
def test_decodes_utf8_and_byte_order_marks(data: bytes) -> None:
    assert decode(data) == "naïve"


def test_a_coding_cookie_counts_in_python_only() -> None:
    data = "#!/usr/bin/python\n# -*- coding: latin-1 -*-\nname = 'naïve'\n".encode("latin-1")
    assert "naïve" in decode(data, python=True)
    with pytest.raises(NotText, match="cannot be decoded"):
        decode(data)


def test_a_mark_and_a_cookie_that_agree() -> None:
    assert decode(codecs.BOM_UTF8 + b"# coding: utf-8\n", python=True) == "# coding: utf-8\n"


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"# coding: latin-1\n", id="unlike the mark"),
        pytest.param(b"# coding: no-such-codec\n", id="unknown"),
        pytest.param(b"# coding: rot13\n", id="not a codec of bytes"),
        pytest.param(b"# coding: raw_unicode_escape\nx = '\\ud800'\n", id="lone surrogate"),
    ],
)
def test_a_cookie_that_cannot_be_obeyed_is_not_text(data: bytes) -> None:
    mark = codecs.BOM_UTF8 if b"latin-1" in data else b""
    with pytest.raises(NotText):
        decode(mark + data, python=True)


@pytest.mark.parametrize("python", [False, True])
@pytest.mark.parametrize("data", [b"GIF89a\0\1\2", b"caf\xe9 au lait", b"\xff\xfeodd", b"\xff\xff"])
def test_binary_is_not_text(data: bytes, python: bool) -> None:
    with pytest.raises(NotText):
        decode(data, python=python)


def test_a_nul_byte_is_named_with_its_position() -> None:
    with pytest.raises(NotText, match="NUL byte at position 3"):
        decode(b"abc\0def")


def test_a_nul_character_behind_a_mark_is_not_text_either() -> None:
    with pytest.raises(NotText, match="NUL"):
        decode(codecs.BOM_UTF16_LE + "a\0b".encode("utf-16-le"))


def test_line_ends_become_newlines() -> None:
    assert decode(b"a\r\nb\rc\n") == "a\nb\nc\n"


def test_nothing_is_text() -> None:
    assert decode(b"", python=True) == decode(b"") == ""
