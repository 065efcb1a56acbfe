"""Which payloads a task may declare, what `pgqueue_task` and the tables know of them, and the checks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from functools import partial
from io import StringIO
from typing import Any

import pytest
from django.apps import apps
from django.core.management import call_command
from django.db import ProgrammingError, connection, models
from django.db.migrations.recorder import MigrationRecorder
from django.db.migrations.state import ProjectState
from django.test.utils import isolate_apps
from syrupy.assertion import SnapshotAssertion

from django_pgqueue import Concurrency, JobPayload, RateLimit, Unique, task
from django_pgqueue.checks.payloads import check_payload_triggers, check_payloads
from django_pgqueue.compat import BaseTaskBackend, InvalidTask
from django_pgqueue.maintenance.payloads import synchronize_tasks
from django_pgqueue.models import DeclaredTask, Job
from django_pgqueue.operations import PayloadTriggers
from django_pgqueue.tasks import payload as declare
from tests.receipts.models import Charge, Mail, Order, Receipt, SignedCharge, Visit
from tests.receipts.tasks import send
from tests.support.jobs import fetch as execute
from tests.support.wording import refusals, text_of

from .conftest import NoReceipts


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


def by_row(row: Any) -> Any:
    """A key that needs the row, which plain SQL does not have."""


BAD: list[dict[str, Any]] = [
    *({"payload": payload} for payload in (7, models.Model, Mail, ReceiptProxy, SignedCharge, Receipt)),
    *({"function": each} for each in (take_nothing, take_two, take_any)), {"unique": Unique()},
    {"concurrency": Concurrency(1, key=by_row)}, {"rate_limit": RateLimit(1, per=timedelta(1), key=by_row)},
    {"group": by_row}, {"concurrency": Concurrency(1, key="number")}, {"group": "row"},
    {"search": ["code"]}, {"spread": True},
]  # fmt: skip


def test_what_cannot_be_declared_with_a_payload(fresh: Any, wording: SnapshotAssertion) -> None:
    def declare_it(*, function: Callable[..., None] = take, **options: Any) -> None:
        task(**{"payload": fresh, **options})(function)

    assert refusals(InvalidTask, *(partial(declare_it, **options) for options in BAD)) == wording


def test_a_failed_declaration_leaves_the_model_free(fresh: Any) -> None:
    first = task(payload=fresh, concurrency=Concurrency(1, key="code"))(take)
    again = task(payload=fresh)(take)  # the same path, as when a module is imported again
    assert first.payload is again.payload is fresh


def test_a_foreign_key_is_named_by_its_column() -> None:
    with pytest.raises(InvalidTask, match=r"no argument 'order'.* Its arguments are: customer, order_id"):
        task(payload=type("V", (), {"is_job_payload": True, "_meta": Visit._meta}), group="order")(take)


# -- what the database knows

registry: Any = declare.tasks_of_models

SEND = "tests.receipts.tasks.send"
OTHER = "tests.receipts.tasks.send_again"


@pytest.fixture
def written(db: None) -> None:
    """Other tests of this process may have declared tasks after ``migrate``."""
    synchronize_tasks("default")


@pytest.fixture
def declared(written: None, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Declare the task of receipts with other options."""
    variants = []

    def declare_it(**options: Any) -> None:
        variants.append(replace(send, **options))  # kept: the registry does not keep it
        monkeypatch.setitem(registry, Receipt, variants[-1])

    return declare_it


def insert() -> Job:
    return Receipt.objects.create(order=Order.objects.create(), email="a@b.c").job


@pytest.mark.usefixtures("written")
def test_a_migrate_has_written_what_the_code_declares(wording: SnapshotAssertion) -> None:
    rows = DeclaredTask.objects.filter(model__startswith="receipts.").order_by("model")
    assert [*rows.values()] == wording
    before = execute("SELECT task_path, xmin::text FROM pgqueue_task ORDER BY 1")
    synchronize_tasks("default")
    after = execute("SELECT task_path, xmin::text FROM pgqueue_task ORDER BY 1")
    assert after == before, "rows that have not changed are not written"


@pytest.mark.promise("payload-options")
def test_new_options_count_from_the_next_start(declared: Any, caplog: pytest.LogCaptureFixture) -> None:
    declared(queue_name="other", expires_after=timedelta(minutes=1), concurrency=2)
    assert insert().queue_name == "mail"
    with caplog.at_level("INFO", "django_pgqueue"):
        synchronize_tasks("default")
    assert "stored the tasks that the code declares: 1 row changed" in caplog.text
    job = insert()
    assert job.queue_name == "other"
    assert (job.limit_key, job.wait_position, job.group_key) == (SEND, job.pk, None)  # of all rows


@pytest.mark.django_db(transaction=True)
@pytest.mark.promise("payload-options")
@pytest.mark.parametrize(
    ("command", "options"), [("migrate", {}), ("runqueueworker", {"burst": True, "one_process": True})]
)
def test_a_migrate_and_a_worker_that_starts_synchronize(command: str, options: dict[str, bool]) -> None:
    DeclaredTask.objects.filter(pk=SEND).delete()
    call_command(command, verbosity=0, **options)
    assert DeclaredTask.objects.filter(pk=SEND).exists()


@pytest.mark.usefixtures("written")
def test_triggers_that_are_missing_are_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    synchronize_tasks("default")
    assert caplog.text == ""
    execute("ALTER TABLE receipts_receipt DISABLE TRIGGER pgqueue_payload_insert")
    synchronize_tasks("default")
    assert f"the table of receipts.Receipt is not a job of {SEND}" in caplog.text
    assert "manage.py check --database default" in caplog.text


# -- PayloadTriggers


def run(operation: PayloadTriggers, *, backwards: bool = False) -> None:
    way = operation.database_backwards if backwards else operation.database_forwards
    state = ProjectState.from_apps(apps)
    with connection.schema_editor(atomic=False) as editor:
        way("receipts", editor, state, state)


def paths(table: str = "receipts_receipt") -> list[str]:
    ((found,),) = execute(f"SELECT _pgqueue_payload_paths('{table}')")
    return list(found)


@pytest.mark.usefixtures("written")
def test_a_new_path_takes_over_and_the_earlier_one_still_counts() -> None:
    order = Order.objects.create()
    job = Job.objects.create(task_path=SEND)
    run(PayloadTriggers("Receipt", OTHER))
    assert paths() == [OTHER, SEND]
    new = insert()
    assert (new.task_path, new.queue_name) == (OTHER, "mail"), "with the policy of the earlier path"
    Receipt.objects.create(order=order, email="b@b.c", job_id=job.pk)  # by old code, with enqueue()
    run(PayloadTriggers("Receipt", OTHER), backwards=True)
    assert paths() == [SEND]
    run(PayloadTriggers("Receipt", SEND), backwards=True)
    assert paths() == []
    row = Receipt.objects.create(order=order, email="c@b.c")
    assert not Job.objects.filter(pk=row.pk).exists()


@pytest.mark.django_db
def test_it_is_written_into_migrations() -> None:
    operation = PayloadTriggers("Receipt", SEND)
    assert operation.deconstruct() == ("PayloadTriggers", ["Receipt", SEND], {})
    assert operation.describe() == f"Let each row of Receipt be a job of {SEND}"
    assert operation.migration_name_fragment == "receipt_triggers"
    assert operation.references_model("receipt", "receipts")
    operation.state_forwards("receipts", ProjectState.from_apps(apps))
    call_command("makemigrations", "receipts", check=True, dry_run=True, stdout=StringIO())


@pytest.mark.parametrize(("name", "why"), [("Nothing", "no such model yet"), ("Order", "not a JobPayload")])
def test_a_wrong_model(name: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        PayloadTriggers(name, SEND).state_forwards("receipts", ProjectState.from_apps(apps))


@pytest.mark.usefixtures("written")
def test_a_table_that_is_renamed_keeps_its_triggers() -> None:
    execute("ALTER TABLE receipts_receipt RENAME TO mails")
    assert paths("mails") == [SEND]
    assert DeclaredTask.objects.get(pk=SEND).relation == "mails"


# -- a column that is a key or the group of a payload is renamed


def insert_visit(column: str) -> int:
    ((found,),) = execute(f"INSERT INTO receipts_visit ({column}) VALUES ('ann') RETURNING job_id")
    return int(found)


@pytest.mark.usefixtures("written")
def test_rows_are_refused_rather_than_jobs_without_a_group(
    monkeypatch: pytest.MonkeyPatch, wording: SnapshotAssertion
) -> None:
    execute("ALTER TABLE receipts_visit RENAME customer_name TO client_name")
    assert text_of(check_payload_triggers(None, databases=["default"])) == wording
    # A migrate of the new code declares the new name.
    monkeypatch.setattr(Visit._meta.get_field("customer"), "column", "client_name")
    call_command("migrate", verbosity=0)
    assert Job.objects.get(pk=insert_visit("client_name")).group_key == "ann"
    execute("ALTER TABLE receipts_visit RENAME client_name TO guest")
    with pytest.raises(ProgrammingError, match=r"receipts_visit has no column client_name") as caught:
        insert_visit("guest")
    assert "run manage.py migrate" in str(caught.value)


# -- the system checks


@pytest.mark.usefixtures("written")
def test_triggers_and_declarations_that_are_missing(wording: SnapshotAssertion) -> None:
    assert check_payloads(None) == check_payload_triggers(None, databases=["default", "other"]) == []
    DeclaredTask.objects.filter(model="receipts.Reminder").delete()  # a restore without the declarations
    execute("ALTER TABLE receipts_receipt DISABLE TRIGGER pgqueue_payload_delete")
    execute("SELECT _pgqueue_attach_payload('receipts_visit', 'shop.tasks.old')")
    assert text_of(check_payload_triggers(None, databases=["default"])) == wording
    assert check_payload_triggers(None, databases=["other"]) == check_payload_triggers(None) == []
    MigrationRecorder(connection).record_unapplied("receipts", "0001_initial")
    found = check_payload_triggers(None, databases=["default"])
    assert {message.id for message in found} == {"pgqueue.W011"}, "an error would stop the migration"
    synchronize_tasks("default")  # as migrate does
    assert check_payload_triggers(None, databases=["default"]) == []


@pytest.mark.usefixtures("written")
def test_the_first_migration_is_not_stopped() -> None:
    execute("ALTER FUNCTION _pgqueue_payload_paths(regclass) RENAME TO pgqueue_away")
    assert check_payload_triggers(None, databases=["default"]) == []


class Elsewhere:
    def db_for_write(self, model: Any, **hints: Any) -> str | None:
        return "other" if model._meta.app_label == "receipts" else None


def test_what_the_checks_say(
    declared: Any, settings: Any, monkeypatch: pytest.MonkeyPatch, wording: SnapshotAssertion
) -> None:
    """Rows in another database, a table that is kept out, a backend of others, a model without a task."""
    said = []
    for router in (Elsewhere, NoReceipts):
        settings.DATABASE_ROUTERS = [router()]
        said.append(text_of(check_payloads(None)))
    settings.DATABASE_ROUTERS = []
    settings.TASKS = {
        "default": {"BACKEND": "django_pgqueue.backend.PgQueueBackend"},
        "dummy": {"BACKEND": f"{BaseTaskBackend.__module__.rpartition('.')[0]}.dummy.DummyBackend"},
    }
    declared(backend="dummy")
    said.append(text_of(check_payloads(None)))
    synchronize_tasks("default")
    monkeypatch.delitem(registry, Receipt)
    said.append(text_of(check_payloads(None)))
    assert "\n".join(said) == wording


def test_rows_that_maintenance_cannot_delete(
    monkeypatch: pytest.MonkeyPatch, wording: SnapshotAssertion
) -> None:
    """Others reference them by fields without a relation back, too."""
    with isolate_apps("tests.receipts"):

        class Folder(models.Model):
            first: Any = models.ForeignKey(Charge, models.CASCADE, related_name="+")
            all: Any = models.ManyToManyField(Charge, related_name="+")
            loose: Any = models.ManyToManyField(Charge, db_constraint=False, related_name="+")

            class Meta:
                app_label = "receipts"

    known = apps.get_models()
    monkeypatch.setattr(Charge, "keep_rows", False)
    monkeypatch.setattr(apps, "get_models", lambda *args, **kwargs: [*known, Folder])
    assert text_of(check_payloads(None)) == wording


def test_another_key(monkeypatch: pytest.MonkeyPatch, wording: SnapshotAssertion) -> None:
    with isolate_apps("tests.receipts", "django_pgqueue"):

        class Numbered(JobPayload):
            number = models.AutoField(primary_key=True)
            job: Any = models.BigIntegerField()

            class Meta:
                app_label = "receipts"

        monkeypatch.setattr(apps, "get_models", lambda *args, **kwargs: [Numbered, Receipt, SignedCharge])
        assert text_of(check_payloads(None)) == wording
