"""Write lists as PostgreSQL array literals, for the statements that handle thousands of jobs.

psycopg converts a list element by element in Python; joining strings is several times faster.
Source of the syntax: PostgreSQL documentation, 8.15.6 "Array Input and Output Syntax".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def number_array(values: Iterable[float | None]) -> str:
    """Write ``[1, None]`` as ``{1,NULL}``; floats keep their shortest exact form."""
    return "{" + ",".join(["NULL" if value is None else repr(value) for value in values]) + "}"


def seconds_array(values: Sequence[float | None]) -> str:
    """Write ``[0.25, None]`` as ``{0.250000,NULL}``, to the microsecond.

    This is three times faster than round(), and twice as fast again if there is no None, which is usual.
    """
    if None in values:
        return "{" + ",".join(["NULL" if value is None else f"{value:.6f}" for value in values]) + "}"
    return "{" + ",".join(["%.6f"] * len(values)) % tuple(values) + "}"


def text_array(values: Iterable[str | None]) -> str:
    """Write ``['a "b"', None]`` as ``{"a \\"b\\"",NULL}``."""
    texts = [value and value.replace("\\", "\\\\").replace('"', '\\"') for value in values]
    return "{" + ",".join(["NULL" if text is None else f'"{text}"' for text in texts]) + "}"
