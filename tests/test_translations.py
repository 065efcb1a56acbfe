"""The catalogs: complete, compiled, with the placeholders of the English texts, and used by the pages."""

from __future__ import annotations

import re

import pytest
from babel.messages.catalog import Message
from django.contrib.auth.models import User
from django.test import Client
from django.utils import translation

from tests.support.catalogs import LANGUAGES, catalog, compiled, extracted, folder, strings
from tests.support.factories import JobFactory

from .admin.helpers import body, url

UPDATE = "run: python3 dev.py messages"
_TITLE = "Overview of the queues"
INTERNAL = re.compile(r"\b(ring|shelf|ticks?|verdict|told)\b", re.IGNORECASE)
PLACEHOLDER = re.compile(r"%\(\w+\)[sd]|%%|\{\w*\}")


def ids(message: Message) -> tuple[str, ...]:
    return tuple(message.id) if isinstance(message.id, (tuple, list)) else (message.id,)


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_message_is_translated(language: str) -> None:
    messages = catalog(language)
    keys = {message.id for message in messages}
    assert keys == {message.id for message in extracted()}, UPDATE
    assert [message.id for message in messages if message.id and not all(strings(message))] == []
    assert not any(message.fuzzy for message in messages if message.id)


def test_no_page_shows_words_of_the_code() -> None:
    """No page shows the column of the one that is left."""
    found = {
        text for message in extracted() for text in ids(message) if INTERNAL.search(PLACEHOLDER.sub("", text))
    }
    assert found == {"shelf"}


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_compiled_catalog_is_up_to_date(language: str) -> None:
    assert (folder(language) / "django.mo").read_bytes() == compiled(catalog(language)), UPDATE


@pytest.mark.parametrize("language", LANGUAGES)
def test_placeholders_are_those_of_the_english_text(language: str) -> None:
    """A plural form may leave out the number, as "one" does in English."""
    for message in catalog(language):
        if not message.id:
            continue
        allowed = {name for text in ids(message) for name in PLACEHOLDER.findall(text)}
        needed = set.intersection(*({*PLACEHOLDER.findall(text)} for text in ids(message)))
        for text in strings(message):
            found = set(PLACEHOLDER.findall(text))
            assert needed <= found <= allowed, (message.id, text)


@pytest.mark.django_db
@pytest.mark.parametrize("language", LANGUAGES)
def test_pages_speak_the_language_of_the_user(client: Client, language: str) -> None:
    client.force_login(User.objects.create_superuser("root"))
    job = JobFactory.create(failed=True)
    with translation.override(language):
        for address, english in ((url("overview"), _TITLE), (url("change", job.pk), "Attempts")):
            translated = translation.gettext(english)
            assert translated != english
            assert translated in body(client, address)
