"""Control characters in the texts of the pages, written out.

Names, arguments and messages of errors come from anywhere. They may contain characters that no browser shows,
or that turn around what follows: after U+202E, ``gpj.exe`` is read as ``exe.jpg``. All pages of the admin
classes pass through here, so that none has to think of it. Only texts change: addresses, and what a form
sends back, keep the characters.
"""

from __future__ import annotations

import re
from functools import wraps
from typing import TYPE_CHECKING, Any

from django.http import HttpResponse
from django.template.response import SimpleTemplateResponse

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.http import HttpRequest, HttpResponseBase

__all__ = ["readable"]

#: Not the marks U+200E, U+200F and U+061C, nor the joiners: texts in Arabic, Hebrew and Persian need them.
_CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
#: What is not text to read: tags with their attributes, and fields, whose text is sent back.
_MARKUP = re.compile(r"(<textarea\b.*?</textarea\s*>|<[^>]*>)", re.IGNORECASE | re.DOTALL)


def readable(view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """Return a view whose pages have no control characters in their texts."""

    @wraps(view)
    def with_readable_texts(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        response = view(request, *args, **kwargs)
        if isinstance(response, SimpleTemplateResponse):
            response.add_post_render_callback(_write_out)
        elif isinstance(response, HttpResponse):
            _write_out(response)
        return response

    return with_readable_texts


def _write_out(response: HttpResponse) -> None:
    """Write out the control characters of a page, as JSON does."""
    if not response.headers.get("Content-Type", "").startswith("text/html"):
        return
    html = response.content.decode(response.charset)
    if not _CONTROLS.search(html):
        return
    parts = _MARKUP.split(html)
    parts[::2] = [_CONTROLS.sub(_escape, part) for part in parts[::2]]
    response.content = "".join(parts).encode(response.charset)


def _escape(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"
