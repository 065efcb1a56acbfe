"""E025 and W012: fields of a project that refer to rows of the queue."""

from __future__ import annotations

from typing import Any

import pytest
from django.apps import apps
from django.core.checks import run_checks
from django.db import models
from django.test.utils import isolate_apps

from django_pgqueue.checks.payloads import check_references
from django_pgqueue.models import Job, JobBatch, Queue, Worker

FREE: dict[str, Any] = {"on_delete": models.DO_NOTHING, "db_constraint": False, "related_name": "+"}
BOUND: dict[str, Any] = {**FREE, "db_constraint": True}
RULED: dict[str, Any] = {**FREE, "on_delete": models.SET_NULL, "null": True}


def problems(
    monkeypatch: pytest.MonkeyPatch, make: Any, bases: tuple[Any, ...] = (models.Model,)
) -> list[Any]:
    """Return what the check finds in a model with one field, or without one, and with these bases."""
    with isolate_apps("tests.app", "django_pgqueue"):
        body: dict[str, Any] = {"__module__": __name__, "Meta": type("Meta", (), {"app_label": "app"})}
        if make is not None:
            body["job"] = make()
        model = type("Export", bases, body)
        monkeypatch.setattr(apps, "get_models", lambda *args, **kwargs: [model])
        return list(check_references(None))


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: models.ForeignKey(Job, **BOUND), "E025"),
        (lambda: models.ForeignKey(Job, models.CASCADE, related_name="+"), "E025"),
        (lambda: models.OneToOneField(Job, **BOUND), "E025"),
        (lambda: models.ManyToManyField(Job, related_name="+"), "E025"),
        (lambda: models.ForeignKey(Job, **RULED), "W012"),
        (lambda: models.ForeignKey(JobBatch, **BOUND), "W012"),
        (lambda: models.ForeignKey(Worker, **RULED), "W012"),
        (lambda: models.ForeignKey(Job, **FREE), None),
        (lambda: models.OneToOneField(Job, **FREE), None),
        (lambda: models.ManyToManyField(Job, db_constraint=False, related_name="+"), None),
        (lambda: models.ForeignKey(JobBatch, **FREE), None),
        (lambda: models.ForeignKey(Queue, models.CASCADE, related_name="+"), None),
    ],
)
def test_a_reference(monkeypatch: pytest.MonkeyPatch, make: Any, expected: str | None) -> None:
    found = problems(monkeypatch, make)
    assert [message.id for message in found] == ([f"pgqueue.{expected}"] if expected else [])
    assert all(message.msg.startswith("app.Export.job ") for message in found)
    assert all("db_constraint=False" in message.hint for message in found)


def test_a_model_that_inherits_from_job_is_told_of_payloads(monkeypatch: pytest.MonkeyPatch) -> None:
    (found,) = problems(monkeypatch, None, (Job,))
    assert (found.id, "JobPayload" in found.hint) == ("pgqueue.E025", True)


def test_the_models_of_this_package_and_payloads_are_fine() -> None:
    ids = {message.id for message in run_checks()}
    assert not ids & {"pgqueue.E025", "pgqueue.W012"}
