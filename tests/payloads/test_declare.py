"""What `@task(payload=...)` accepts."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import models
from django.test.utils import isolate_apps

from django_pgqueue import Concurrency, JobPayload, RateLimit, Unique, task
from django_pgqueue.compat import InvalidTask
from tests.receipts.models import Mail, Receipt, SignedCharge, Visit
from tests.receipts.tasks import send


def take(row: Any) -> None:
    """A function for tasks."""


def take_nothing() -> None:
    """A function without arguments."""


def take_two(row: Any, dry: bool = False) -> None:
    """A function with another argument."""


def take_any(*rows: Any) -> None:
    """A function with any number of arguments."""


@pytest.fixture(scope="module")
def fresh() -> Iterator[type[JobPayload]]:
    """A payload model that no task has."""
    with isolate_apps("tests.receipts", "django_pgqueue"):

        class Fresh(JobPayload):
            number = models.DecimalField(max_digits=5, decimal_places=2)
            code = models.UUIDField()

            class Meta:
                app_label = "receipts"

        yield Fresh


with isolate_apps("tests.receipts"):

    class ReceiptProxy(Receipt):
        """The same rows."""

        class Meta:
            app_label = "receipts"
            proxy = True


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (7, "payload must be a model that inherits from JobPayload. It is 7"),
        (models.Model, "payload must be a model that inherits from JobPayload"),
        (Mail, "Mail is abstract, so it has no rows"),
        (ReceiptProxy, "ReceiptProxy is a proxy. Use payload=Receipt"),
        (SignedCharge, "the primary key of receipts.SignedCharge is 'charge_ptr'"),
        (Receipt, "receipts.Receipt is the payload of tests.receipts.tasks.send already"),
    ],
)
def test_models(model: Any, message: str) -> None:
    with pytest.raises(InvalidTask, match=message):
        task(payload=model)(take)


@pytest.mark.parametrize("function", [take_nothing, take_two, take_any])
def test_functions(function: Callable[..., Any], fresh: Any) -> None:
    with pytest.raises(InvalidTask, match="takes the payload and nothing else"):
        task(payload=fresh)(function)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"unique": Unique()}, "unique= cannot apply to it. Use a UniqueConstraint"),
        ({"concurrency": Concurrency(1, key=lambda row: 1)}, "the key of concurrency is a callable"),
        ({"rate_limit": RateLimit(1, per=timedelta(1), key=lambda row: 1)}, "the key of rate_limit is a"),
        ({"group": lambda row: "x"}, "the key of group is a callable"),
        ({"concurrency": Concurrency(1, key="number")}, "no argument 'number'.* Its arguments are: code"),
        ({"group": "row"}, "no argument 'row', which group names. Its arguments are: code"),
    ],
)
def test_options(options: Any, message: str, fresh: Any) -> None:
    with pytest.raises(InvalidTask, match=message):
        task(payload=fresh, **options)(take)


def test_a_failed_declaration_leaves_the_model_free(fresh: Any) -> None:
    first = task(payload=fresh, concurrency=Concurrency(1, key="code"))(take)
    again = task(payload=fresh)(take)  # the same path, as when a module is imported again
    assert first.payload is again.payload is fresh


def test_a_variant_is_pickled_by_its_path() -> None:
    variant = send.using(priority=1)
    assert variant.payload is Receipt
    assert pickle.loads(pickle.dumps(variant)) == variant  # noqa: S301


def test_a_foreign_key_is_named_by_its_column() -> None:
    with pytest.raises(InvalidTask, match=r"no argument 'order'.* Its arguments are: customer, order_id"):
        task(payload=type("V", (), {"is_job_payload": True, "_meta": Visit._meta}), group="order")(take)
