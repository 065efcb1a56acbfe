"""Forms that are filled with redacted values: what the user leaves as it was shown keeps its stored value."""

from __future__ import annotations

import json
from typing import Any

from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _

from ...redaction import FAILED, REDACTED, restore

__all__ = ["restored"]


def restored(given: Any, shown: Any, stored: Any) -> Any:
    """Return the value that a form means. Raise ValidationError if a mark is left that stands for nothing, as
    in a list with an element more: it would be stored like a value.
    """
    value = restore(given, shown, stored)
    for mark in (REDACTED, FAILED):
        if mark in json.dumps(value) and mark not in json.dumps(stored):
            words = _("Replace each “%(mark)s” by a value: it is not clear which one it stands for.")
            raise ValidationError(words, code="redacted", params={"mark": mark})
    return value
