"""Read the beginning of JSON that was cut off: the list of jobs reads only so much of long arguments."""

from __future__ import annotations

import json
import re
from typing import Any

__all__ = ["load_cut"]

_TOKENS = re.compile(r'"(?:[^"\\]|\\.)*(?:"|\\?\Z)|[\[\]{},:]')
_CLOSED_BY = {"[": "]", "{": "}"}


def load_cut(text: str) -> tuple[Any, bool]:
    """Return a JSON list or object, and whether it was cut. Then it has only the values that are whole, and
    the beginning of a string that is an element of a list, or the value of a key.
    """
    try:
        return json.loads(text), False
    except ValueError:
        pass
    open_brackets: list[str] = []
    end, closing = 0, ""
    place = 0
    for token in _TOKENS.finditer(text):
        sign = token[0]
        if sign.startswith('"') and (len(sign) == 1 or not sign.endswith('"') or token.end() == len(text)):
            break  # the string in which the text was cut, or a key or value that may continue
        place = token.end()
        if sign in _CLOSED_BY:
            open_brackets.append(_CLOSED_BY[sign])
        elif sign in ("]", "}"):
            open_brackets.pop()
        elif sign != ",":
            continue
        end = token.start() if sign == "," else place
        closing = "".join(reversed(open_brackets))
    whole = text[:end] + closing
    return _with_beginning(text[:place], text[place:], open_brackets, whole), True


def _with_beginning(before: str, rest: str, open_brackets: list[str], whole: str) -> Any:
    """Return the value with the string in which the text was cut, if that can be told."""
    rest = rest.lstrip()
    is_value = before.rstrip().endswith((":", "[")) or (before.endswith(",") and open_brackets[-1:] == ["]"])
    if rest.startswith('"') and is_value:
        # The last character may be half of an escape.
        beginning = re.sub(r"\\(u[0-9a-fA-F]{0,3})?$", "", rest)
        try:
            return json.loads(f'{before} {beginning}…"' + "".join(reversed(open_brackets)))
        except ValueError:
            pass
    try:
        return json.loads(whole)
    except ValueError:
        return None
