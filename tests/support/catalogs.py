"""The messages that are translated, and the catalogs of the languages: ``python3 dev.py messages``.

This writes the messages of the code and the templates into all catalogs and compiles them. It needs no
gettext tools: Babel reads the code, and Django turns its templates into something that Babel can read.
"""

from __future__ import annotations

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")

from functools import cache
from io import BytesIO
from pathlib import Path

from babel.messages.catalog import Catalog, Message
from babel.messages.extract import extract
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po, write_po
from django.utils.translation.template import templatize

PACKAGE = Path(__file__).resolve().parents[2] / "django_pgqueue"
LANGUAGES = ("de", "es", "fr", "ja")
KEYWORDS = {
    **dict.fromkeys(("_", "gettext", "gettext_lazy", "gettext_noop")),
    **dict.fromkeys(("ngettext", "ngettext_lazy", "plural"), (1, 2)),  # the last one is of the admin
    **dict.fromkeys(("pgettext", "pgettext_lazy"), ((1, "c"), 2)),
}


def folder(language: str) -> Path:
    """Return where the catalog of a language is."""
    return PACKAGE / "locale" / language / "LC_MESSAGES"


@cache
def catalog(language: str) -> Catalog:
    """Return a catalog as it is in its file."""
    with (folder(language) / "django.po").open("rb") as file:
        return read_po(file, locale=language, domain="django")


def compiled(messages: Catalog) -> bytes:
    """Return the file that Django reads."""
    file = BytesIO()
    write_mo(file, messages)
    return file.getvalue()


@cache
def extracted() -> Catalog:
    """Return the messages of the package, untranslated."""
    found = Catalog(domain="django", project="django_pgqueue")
    for path in [*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.html")]:
        code = path.read_text(encoding="utf-8")
        if path.suffix == ".html":
            code = templatize(code, origin=str(path))  # everything but the messages is blanked
        for _line, messages, _comments, context in extract("python", BytesIO(code.encode()), KEYWORDS):
            key = messages if isinstance(messages, tuple) else (messages,)
            is_format = "%(" in key[0]
            found.add(messages, context=context, flags=["python-format"] if is_format else [])
    return found


def update() -> None:
    """Write all catalogs: new messages are untranslated, and those that are gone are left out."""
    template = extracted()
    for language in LANGUAGES:
        messages = catalog(language)
        messages.update(template, no_fuzzy_matching=True)
        messages.obsolete.clear()
        po = BytesIO()
        write_po(po, messages, width=110, sort_output=True, omit_header=False, ignore_obsolete=True)
        (folder(language) / "django.po").write_bytes(po.getvalue())
        (folder(language) / "django.mo").write_bytes(compiled(messages))
        missing = [message.id for message in messages if message.id and not all(strings(message))]
        print(f"{language}: {len(messages)} messages, {len(missing)} to translate")


def strings(message: Message) -> tuple[str, ...]:
    """Return the translation: one text, or one for each plural form."""
    found = message.string
    return tuple(found) if isinstance(found, (tuple, list)) else (found or "",)


if __name__ == "__main__":
    update()
