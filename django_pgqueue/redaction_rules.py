"""What the setting REDACT accepts: names of keys and patterns, or the path of a callable.

A name stands for whole words of a key: "api_key" matches the keys ``api_key``, ``apiKey``, ``APIKEY`` and
``stripe-api-key``, and "token" matches ``access_token``, but not ``max_tokens``. The database compares keys
in the same way (``admin/visible.sql``), with expressions that Python and PostgreSQL both know.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

#: What is redacted if REDACT is not set.
DEFAULT_NAMES = (
    "password", "passwords", "passwd", "pwd", "pass", "passphrase", "passcode", "secret", "secrets", "token",
    "api_key", "access_key", "private_key", "encryption_key", "signing_key", "auth", "authorization",
    "credential", "credentials", "cookie", "cookies", "csrf_token", "session_id", "session_key", "signature",
    "jwt", "otp", "card_number", "cvc", "cvv", "ssn",
)  # fmt: skip

#: A string that begins like this is a pattern.
_PATTERN = "re:"
_SHAPE = (
    'a list of names and patterns, such as ["password", "api_key", "re:^iban$"], or the path of a callable'
)
_HUMPS = (re.compile("([a-z0-9])([A-Z])"), re.compile("([A-Z])([A-Z][a-z])"))


@dataclass(frozen=True, slots=True, repr=False)
class Rules:
    """What is redacted."""

    names: tuple[str, ...] = DEFAULT_NAMES
    patterns: tuple[re.Pattern[str], ...] = ()
    function: str = ""  # the path of the callable that does it instead

    def __repr__(self) -> str:
        if self == DEFAULT_RULES:
            return "redaction.DEFAULT_NAMES"
        return repr(self.function or [*self.names, *(_PATTERN + each.pattern for each in self.patterns)])

    @property
    def are_names(self) -> bool:
        """Whether there are only names. They are about keys, and so they change no text."""
        return not (self.function or self.patterns)

    def hide(self, key: str) -> bool:
        """Return whether the value of a key is redacted."""
        is_named = self.names and _finder(self.names).search(spelled(key))
        return bool(is_named) or any(pattern.search(key) for pattern in self.patterns)


DEFAULT_RULES = Rules()


def rules(value: Any) -> Rules:
    """Accept a list of names and patterns, or the path of a callable."""
    if isinstance(value, str):
        if not is_path(value):
            raise ValueError(_SHAPE)
        return Rules((), function=value)
    if isinstance(value, (bytes, Mapping)) or not hasattr(value, "__iter__"):
        raise ValueError(_SHAPE)
    names, patterns = [], []
    for each in value:
        if isinstance(each, re.Pattern) and isinstance(each.pattern, str):
            patterns.append(each)
        elif isinstance(each, str) and each.startswith(_PATTERN):
            patterns.append(_compiled(each.removeprefix(_PATTERN)))
        elif isinstance(each, str) and _words(each):
            names.append(each)
        else:
            raise ValueError(f"{_SHAPE}, but {each!r} is none of these")
    return Rules(tuple(names), tuple(patterns))


def name_expression(names: tuple[str, ...]) -> str:
    """Return a regular expression, for Python and PostgreSQL, that finds the names in a ``spelled`` key."""
    each = "|".join(r"(\W|_)*".join(_words(name)) for name in names)
    return rf"(^|\W|\d|_)({each})($|\W|\d|_)" if each else "^$"


def coarse_expression(names: tuple[str, ...]) -> str:
    """Return one that finds them in keys as they are, and finds other keys, too."""
    return "|".join(".*".join(_words(name)) for name in names) or "^$"


def spelled(key: str) -> str:
    """Return a key in lower case, with ``_`` between the words of ``camelCase``."""
    for hump in _HUMPS:
        key = hump.sub(r"\1_\2", key)
    return key.lower()


def is_path(value: Any) -> bool:
    """Return whether a value is a dotted path."""
    parts = value.split(".") if isinstance(value, str) else []
    return len(parts) > 1 and all(part.isidentifier() for part in parts)


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{_SHAPE}, but the pattern {pattern!r} is wrong: {error}") from None


def _words(name: str) -> list[str]:
    return [word for word in re.split(r"[\W_]+", spelled(name)) if word]


@cache
def _finder(names: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(name_expression(names))
