"""What is redacted: values by the names of their keys and parameters, by patterns, and by a callable."""

from __future__ import annotations

import json
import logging
import re
import sys
from copy import deepcopy
from types import ModuleType
from typing import Any

import pytest
from django.test import override_settings

from django_pgqueue import enqueue, redaction
from django_pgqueue.backend import PgQueueBackend
from django_pgqueue.redaction import (
    FAILED,
    REDACTED,
    Names,
    names_of_call,
    redact,
    redact_call,
    redact_text,
    restore,
)
from tests.app import secret_tasks as tasks
from tests.support.workers import run_due

SIGN_IN = tasks.sign_in.module_path
MANY = tasks.many.module_path
CARD = r"re:\b\d{4}(-?\d{4}){3}\b"


NAMES = """
    password PASSWORD user_password userPassword password2 new-password api_key apiKey APIKEY APIKey x-api-key
    stripe.api_key access_token HTTPAuthToken sessionid auth
"""


def test_a_name_stands_for_whole_words_of_a_key() -> None:
    for key in NAMES.split():
        assert redact({key: "hunter2", "n": 1}) == {key: REDACTED, "n": 1}
    for key in ("max_tokens", "compass", "author", "key", "passenger", "secretary", "Zählung"):
        assert redact({key: "shown"}) == {key: "shown"}


@pytest.mark.promise("redaction-stores-all")
def test_values_of_any_depth_are_redacted_and_the_given_value_stays() -> None:
    value = {"rows": [{"token": {"a": 1}, "ok": [1, 2.5, None]}], "password": None, "secret": True, "pwd": 5}
    before = deepcopy(value)
    assert redact(value) == {
        "rows": [{"token": REDACTED, "ok": [1, 2.5, None]}],
        "password": None,  # that there is none is no secret
        "secret": True,
        "pwd": REDACTED,
    }
    assert value == before


@pytest.mark.parametrize(("path", "args", "shown"), [
    (SIGN_IN, ["ann", "hunter2"], ["ann", REDACTED]), (SIGN_IN, ["ann"], ["ann"]),
    (SIGN_IN, [{"pin": 1, "otp": 2}, "x", "too many"], [{"pin": 1, "otp": REDACTED}, REDACTED, "too many"]),
    (MANY, ["ann", "a", "b"], ["ann", "a", "b"]),
    ("gone.tasks.sign_in", ["ann", "hunter2"], ["ann", "hunter2"]),
])  # fmt: skip
def test_a_positional_argument_has_the_name_of_its_parameter(path: str, args: Any, shown: Any) -> None:
    assert redact_call(args, {"apiKey": "k", "n": 1}, path) == (shown, {"apiKey": REDACTED, "n": 1})
    with override_settings(PGQUEUE={"REDACT": ["tokens"]}):  # that of all further arguments
        assert redact_call(["ann", "a", "b"], {}, MANY) == (["ann", REDACTED, REDACTED], {})


def test_patterns_are_about_keys_values_and_texts() -> None:
    with override_settings(PGQUEUE={"REDACT": [CARD, re.compile("^iban$", re.IGNORECASE)]}):
        assert redact({"IBAN": "x", "note": "by 4111-1111-1111-1111.", "n": 4111111111111111, "m": 4}) == {
            "IBAN": REDACTED, "note": f"by {REDACTED}.", "n": REDACTED, "m": 4,
        }  # fmt: skip
        assert redact({"password": "shown"}) == {
            "password": "shown"
        }  # the list takes the place of the default
        assert redact_text("4111111111111111 is refused") == f"{REDACTED} is refused"
    assert redact_text("password=hunter2") == "password=hunter2"


def test_a_callable_gets_arguments_by_name_and_a_copy() -> None:
    args, kwargs = ["ann", "hunter2"], {"user": "bob"}
    with override_settings(PGQUEUE={"REDACT": "tests.app.secret_tasks.hide_users"}):
        hidden = {"user": "user of sign_in"}
        assert redact_call(args, kwargs, SIGN_IN) == (["user of sign_in", "hunter2"], hidden)
        assert redact_call(["ann", "a", "b"], {}, MANY) == (["user of many", "a", "b"], {})
        assert redact_call(["ann"], {}, "gone.tasks.x") == (["ann"], {})
        result = {"user": "ann"}
        assert redact(result, SIGN_IN) == hidden
    assert (args, kwargs, result) == (["ann", "hunter2"], {"user": "bob"}, {"user": "ann"})


@pytest.mark.parametrize("name", ["fail", "return_nonsense", "gone", "NOT_CALLABLE"])
@pytest.mark.promise("redaction-fails-closed")
def test_if_a_callable_fails_no_value_is_shown(name: str, caplog: pytest.LogCaptureFixture) -> None:
    with override_settings(PGQUEUE={"REDACT": f"tests.app.secret_tasks.{name}"}):
        assert redact({"a": "hunter2"}, SIGN_IN) == FAILED
        assert redact_call(["ann", "hunter2"], {"n": 1}, SIGN_IN) == ([FAILED, FAILED], {"n": FAILED})
        assert redact_call(["ann"], {}, "gone.tasks.x") == ([FAILED], {})
        assert redact_text("hunter2") == FAILED
    assert len(caplog.messages) <= 1  # once, not for each row of a page
    assert "hunter2" not in caplog.text


def test_a_task_that_could_not_be_imported_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    path, clock = "app_of_later.tasks.sign_in", [1000.0]
    monkeypatch.setattr(redaction, "monotonic", lambda: clock[0])
    monkeypatch.setattr(redaction, "_not_before", {})
    assert names_of_call(path) == Names()
    later = ModuleType("app_of_later.tasks")
    later.sign_in = tasks.sign_in  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "app_of_later.tasks", later)
    assert names_of_call(path) == Names()
    clock[0] += 61
    assert names_of_call(path).each == ("user", "password")


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ({"user": "ann", "password": REDACTED}, {"user": "ann", "password": "hunter2"}),
        ({"user": "bob", "password": REDACTED}, {"user": "bob", "password": "hunter2"}),
        ({"user": "ann", "password": "new"}, {"user": "ann", "password": "new"}),
        ({"password": REDACTED, "more": 1}, {"password": "hunter2", "more": 1}),
        ({"other": REDACTED}, {"other": REDACTED}),
    ],
)
def test_what_a_form_leaves_as_it_was_shown_is_what_is_stored(given: Any, meant: Any) -> None:
    stored = {"user": "ann", "password": "hunter2"}
    assert restore(given, redact(stored), stored) == meant
    assert restore([given, 1], [redact(stored), 2], [stored, 2]) == [meant, 1]
    assert restore([given], [], []) == [given]


@pytest.mark.django_db
@pytest.mark.promise("redaction-stores-all")
def test_the_repr_of_a_result_is_redacted_and_its_values_are_not() -> None:
    result: Any = PgQueueBackend("default", {}).enqueue(tasks.sign_in, ["ann", "hunter2"], {"api_key": "k-1"})
    shown = repr(result)
    assert "ann" in shown
    assert "hunter2" not in shown
    assert "k-1" not in shown
    assert (result.args, result.kwargs) == (["ann", "hunter2"], {"api_key": "k-1"})
    assert shown.startswith("QueueTaskResult(task=")
    assert f"args=['ann', '{REDACTED}']" in shown


@pytest.mark.django_db(transaction=True)
@override_settings(PGQUEUE={"REDACT": [CARD]})
@pytest.mark.promise("redaction-everywhere")
def test_the_log_of_a_failed_job_is_redacted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "django_pgqueue.job")
    job = enqueue(tasks.sign_in, "nobody", "x")
    run_due()
    (record,) = [record for record in caplog.records if record.name == "django_pgqueue.job"]
    text = logging.Formatter("%(message)s").format(record)
    assert text.count(f"card {REDACTED} of nobody is refused") == 2  # in the line, and below the traceback
    assert "4111-1111" not in text
    job.refresh_from_db()
    assert "4111-1111-1111-1111" in json.dumps(job.errors)  # what is stored is what was raised
