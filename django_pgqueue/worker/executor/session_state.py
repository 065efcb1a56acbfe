"""Recognize statements that leave state in the database session after their transaction.

They are recognized by their text, without a round trip: SET (not SET LOCAL), set_config() unless it is local,
RESET, DISCARD, LISTEN, LOAD, PREPARE, temporary tables, cursors WITH HOLD, session advisory locks, setseed(),
dblink_connect() and every DO block. A statement that is reported by mistake costs a new connection. What a
function or procedure does inside the database is not recognized.
"""

from __future__ import annotations

import re
from functools import lru_cache

__all__ = ["leaves_state"]

_LONG = 4096  # characters; longer texts are not remembered

_BLANK = r"(?: \s | --[^\n]*\n | /\* .*? \*/ )*"
_STATEMENT = re.compile(
    rf"""
    (?: \A | ; ) {_BLANK}
    (?:
        SET \b (?! \s* (?: LOCAL | TRANSACTION | CONSTRAINTS ) \b )
      | (?: RESET | DISCARD | LISTEN | LOAD | DO ) \b
      | PREPARE \b (?! \s* TRANSACTION \b )
      | DECLARE \b [^;]*? \b WITH \s+ HOLD \b
      | CREATE \s+ (?: OR \s+ REPLACE \s+ )? (?: (?: GLOBAL | LOCAL ) \s+ )? TEMP
    )
    """,
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)
_ANYWHERE = re.compile(
    r"""
      \b set_config \b (?! \s* \( [^()]* , \s* true \s* \) )
    | \b pg_(?: try_ )? advisory_lock
    | \b pg_temp
    | \b INTO \s+ (?: (?: GLOBAL | LOCAL ) \s+ )? TEMP
    | \b setseed \b
    | \b dblink_connect
    """,
    re.VERBOSE | re.IGNORECASE,
)
#: _ANYWHERE finds nothing in a text without one of these (in lower case). Searching for them is much faster.
_HINTS = ("set_config", "advisory_lock", "temp", "setseed", "dblink_connect")


def leaves_state(text: str) -> bool:
    """Return whether this SQL may leave something in the session."""
    # The ORM sends the same few texts repeatedly, so most answers come from the cache.
    return _remembered(text) if len(text) <= _LONG else _looked_at(text)


def _looked_at(text: str) -> bool:
    found = _STATEMENT.search(text) if ";" in text else _STATEMENT.match(text)
    if found:
        return True
    lower = text.lower()
    return any(hint in lower for hint in _HINTS) and _ANYWHERE.search(text) is not None


_remembered = lru_cache(maxsize=512)(_looked_at)
