"""The declarations in `pgqueue_task`, the migration operation, and the checks."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.apps import apps
from django.core.management import call_command
from django.db import ProgrammingError, connection, connections, migrations, models
from django.db.migrations.recorder import MigrationRecorder
from django.db.migrations.state import ModelState, ProjectState
from django.test.utils import isolate_apps

from django_pgqueue import JobPayload
from django_pgqueue.checks.payloads import check_payload_triggers, check_payloads
from django_pgqueue.compat import BaseTaskBackend
from django_pgqueue.maintenance.payloads import synchronize_tasks
from django_pgqueue.models import DeclaredTask, Job
from django_pgqueue.operations import PayloadTriggers
from django_pgqueue.tasks import payload as declare
from tests.receipts.models import Charge, Order, Receipt, SignedCharge, Visit
from tests.receipts.tasks import send

pytestmark = pytest.mark.django_db

registry: Any = declare.tasks_of_models

SEND = "tests.receipts.tasks.send"
OTHER = "tests.receipts.tasks.send_again"


@pytest.fixture(autouse=True)
def _others_are_written() -> None:
    """Other tests of this process may have declared tasks after ``migrate``."""
    synchronize_tasks("default")


@pytest.fixture
def declared(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Declare the task of receipts with other options."""
    variants = []

    def declare_it(**options: Any) -> None:
        variants.append(replace(send, **options))  # kept: the registry does not keep it
        monkeypatch.setitem(registry, Receipt, variants[-1])

    return declare_it


def test_a_migrate_has_written_what_the_code_declares() -> None:
    rows = {row.model: row for row in DeclaredTask.objects.exclude(model=None)}
    assert {*rows} - {"search.Export"} == {
        "receipts.Receipt",
        "receipts.Reminder",
        "receipts.Charge",
        "receipts.Visit",
    }
    row = rows["receipts.Receipt"]
    assert (row.task_path, row.relation, row.queue_name, row.priority) == (
        SEND,
        "receipts_receipt",
        "mail",
        5,
    )
    assert (row.max_attempts, row.timeout, row.on_lost, row.expires_after) == (3, 60, "fail", 3600.0)
    assert (row.metadata, row.keeps) == ({"kind": "receipt"}, False)
    assert (rows["receipts.Visit"].limit_column, rows["receipts.Visit"].group_column) == (
        "order_id",
        "customer_name",
    )
    assert rows["receipts.Charge"].keeps
    with connections["default"].cursor() as cursor:
        cursor.execute("SELECT task_path, xmin::text FROM pgqueue_task ORDER BY 1")
        before = cursor.fetchall()
        synchronize_tasks("default")
        cursor.execute("SELECT task_path, xmin::text FROM pgqueue_task ORDER BY 1")
        assert cursor.fetchall() == before, "rows that have not changed are not written"


@pytest.mark.promise("payload-options")
def test_new_options_count_from_the_next_start(declared: Any, caplog: pytest.LogCaptureFixture) -> None:
    order = Order.objects.create()
    declared(queue_name="other", expires_after=timedelta(minutes=1))
    assert Receipt.objects.create(order=order, email="a@b.c").job.queue_name == "mail"
    with caplog.at_level("INFO", "django_pgqueue"):
        synchronize_tasks("default")
    assert "the code declares other tasks: 1 row changed" in caplog.text
    assert Receipt.objects.create(order=order, email="a@b.c").job.queue_name == "other"


@pytest.mark.promise("payload-options")
def test_a_migrate_synchronizes() -> None:
    DeclaredTask.objects.filter(pk=SEND).delete()
    call_command("migrate", verbosity=0)
    assert DeclaredTask.objects.filter(pk=SEND).exists()


def test_triggers_that_are_missing_are_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    synchronize_tasks("default")
    assert caplog.text == ""
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE receipts_receipt DISABLE TRIGGER pgqueue_payload_insert")
    synchronize_tasks("default")
    assert f"the table of receipts.Receipt is not a job of {SEND}" in caplog.text
    assert "manage.py check --database default" in caplog.text


def test_a_limit_without_a_key_is_that_of_all_rows(declared: Any) -> None:
    declared(concurrency=2)
    synchronize_tasks("default")
    job = Receipt.objects.create(order=Order.objects.create(), email="a@b.c").job
    assert (job.limit_key, job.wait_position, job.group_key) == (SEND, job.pk, None)


@pytest.mark.django_db(transaction=True)
def test_a_worker_that_starts_synchronizes() -> None:
    DeclaredTask.objects.filter(pk=SEND).delete()
    call_command("runqueueworker", burst=True, one_process=True, verbosity=0)
    assert DeclaredTask.objects.filter(pk=SEND).exists()


def test_a_project_without_payloads_asks_one_thing(
    monkeypatch: pytest.MonkeyPatch, django_assert_num_queries: Any
) -> None:
    from django_pgqueue.maintenance import payloads as synchronize

    monkeypatch.setattr(synchronize, "payload_models", list)
    with django_assert_num_queries(1):
        synchronize_tasks("default")


def paths() -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT _pgqueue_payload_paths('receipts_receipt')")
        found: list[str] = cursor.fetchone()[0]
    return found


class TestOperation:
    """`PayloadTriggers`."""

    state = ProjectState.from_apps(apps)

    def run(self, operation: PayloadTriggers, *, backwards: bool = False) -> None:
        way = operation.database_backwards if backwards else operation.database_forwards
        with connection.schema_editor(atomic=False) as editor:
            way("receipts", editor, self.state, self.state)

    def test_a_new_path_takes_over_and_the_earlier_one_still_counts(self) -> None:
        order = Order.objects.create()
        job = Job.objects.create(task_path=SEND)
        self.run(PayloadTriggers("Receipt", OTHER))
        assert paths() == [OTHER, SEND]
        row = Receipt.objects.create(order=order, email="a@b.c")
        assert (row.job.task_path, row.job.queue_name) == (OTHER, "mail"), (
            "with the policy of the earlier path"
        )
        Receipt.objects.create(order=order, email="b@b.c", job_id=job.pk)  # by old code, with enqueue()
        self.run(PayloadTriggers("Receipt", OTHER), backwards=True)
        assert paths() == [SEND]
        self.run(PayloadTriggers("Receipt", SEND), backwards=True)
        assert paths() == []
        row = Receipt.objects.create(order=order, email="c@b.c")
        assert not Job.objects.filter(pk=row.pk).exists()

    def test_it_is_written_into_migrations(self) -> None:
        operation = PayloadTriggers("Receipt", SEND)
        assert operation.deconstruct() == ("PayloadTriggers", ["Receipt", SEND], {})
        assert operation.describe() == f"Let each row of Receipt be a job of {SEND}"
        assert operation.migration_name_fragment == "receipt_triggers"
        assert operation.references_model("receipt", "receipts")
        operation.state_forwards("receipts", self.state)

    @pytest.mark.parametrize(
        ("name", "why"), [("Nothing", "no such model yet"), ("Order", "not a JobPayload")]
    )
    def test_a_wrong_model(self, name: str, why: str) -> None:
        with pytest.raises(ValueError, match=why):
            PayloadTriggers(name, SEND).state_forwards("receipts", self.state)

    def test_a_table_that_is_renamed_keeps_its_triggers(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE receipts_receipt RENAME TO mails")
            cursor.execute("SELECT _pgqueue_payload_paths('mails')")
            assert cursor.fetchone() == ([SEND],)
            assert DeclaredTask.objects.get(pk=SEND).relation == "mails"


def test_the_migrations_of_the_app_are_complete_and_reversible() -> None:
    call_command("makemigrations", "receipts", check=True, dry_run=True, stdout=StringIO())


class TestChecks:
    """The system checks."""

    def test_nothing_is_wrong(self) -> None:
        assert check_payloads(None) == []
        assert check_payload_triggers(None, databases=["default", "other"]) == []

    def test_triggers(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE receipts_receipt DISABLE TRIGGER pgqueue_payload_delete")
            cursor.execute("SELECT _pgqueue_attach_payload('receipts_visit', 'shop.tasks.old')")
        first, second = check_payload_triggers(None, databases=["default"])
        assert (first.id, second.id) == ("pgqueue.E021", "pgqueue.E021")
        assert "receipts.Receipt in the database 'default' are missing, or disabled" in first.msg
        assert f"PayloadTriggers('Receipt', '{SEND}')" in str(first.hint)
        assert "receipts.Visit in the database 'default' belong to shop.tasks.old" in second.msg
        assert check_payload_triggers(None, databases=["other"]) == check_payload_triggers(None) == []
        MigrationRecorder(connection).record_unapplied("receipts", "0001_initial")
        assert check_payload_triggers(None, databases=["default"]) == [], "an error would stop the migration"

    def test_a_restore_without_the_declarations(self) -> None:
        DeclaredTask.objects.filter(model="receipts.Receipt").delete()
        (found,) = check_payload_triggers(None, databases=["default"])
        assert found.id == "pgqueue.W011"
        assert f"does not know the task {SEND} of receipts.Receipt" in found.msg
        synchronize_tasks("default")  # as migrate does
        assert check_payload_triggers(None, databases=["default"]) == []

    def test_the_first_migration_is_not_stopped(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute("ALTER FUNCTION _pgqueue_payload_paths(regclass) RENAME TO pgqueue_away")
        assert check_payload_triggers(None, databases=["default"]) == []

    def test_databases(self, settings: Any) -> None:
        settings.DATABASE_ROUTERS = [Elsewhere()]
        (found,) = {message.msg for message in check_payloads(None) if "Receipt" in message.msg}
        assert found.startswith(
            f"The rows of receipts.Receipt go to the database 'other', but the jobs of {SEND} to 'default'."
        )
        assert {message.id for message in check_payloads(None)} == {"pgqueue.E020"}

    def test_a_table_that_a_router_keeps_out(self, settings: Any) -> None:
        settings.DATABASE_ROUTERS = [NoReceipts()]
        (found,) = [message for message in check_payloads(None) if "Receipt" in message.msg]
        assert found.id == "pgqueue.E020"
        assert found.msg.startswith("The database routers keep the table of receipts.Receipt out of the")

    def test_a_backend_of_others(self, declared: Any, settings: Any) -> None:
        settings.TASKS = {
            "default": {"BACKEND": "django_pgqueue.backend.PgQueueBackend"},
            "dummy": {"BACKEND": f"{BaseTaskBackend.__module__.rpartition('.')[0]}.dummy.DummyBackend"},
        }
        declared(backend="dummy")
        (found,) = check_payloads(None)
        assert (found.id, "its backend 'dummy' is not one of django_pgqueue" in found.msg) == (
            "pgqueue.E020",
            True,
        )
        synchronize_tasks("default")

    def test_a_model_without_a_task(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delitem(registry, Receipt)
        (found,) = check_payloads(None)
        assert (found.id, str(found.hint)) == (
            "pgqueue.W007", "Declare one with @task(payload=Receipt) in a module that TASK_MODULES names."
        )  # fmt: skip

    def test_rows_that_upkeep_cannot_delete(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Charge, "keep_rows", False)
        (found,) = check_payloads(None)
        assert found.id == "pgqueue.W008"
        assert found.msg.startswith("receipts.SignedCharge.charge_ptr references rows of receipts.Charge.")

    def test_fields_without_a_relation_back_to_rows_that_upkeep_deletes(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from django.db import models

        with isolate_apps("tests.receipts"):

            class Folder(models.Model):
                first: Any = models.ForeignKey(Charge, models.CASCADE, related_name="+")
                all: Any = models.ManyToManyField(Charge, related_name="+")
                loose: Any = models.ManyToManyField(Charge, db_constraint=False, related_name="+")

                class Meta:
                    app_label = "receipts"

        monkeypatch.setattr(Charge, "keep_rows", False)
        monkeypatch.setattr(apps, "get_models", lambda *args, **kwargs: [Charge, Folder])
        found = [
            message.msg.partition(" ")[0] for message in check_payloads(None) if message.id == "pgqueue.W008"
        ]
        assert found == ["receipts.Folder.first", "receipts.Folder.all"]

    def test_another_key(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from django.db import models

        with isolate_apps("tests.receipts", "django_pgqueue"):

            class Numbered(JobPayload):
                number = models.AutoField(primary_key=True)
                job: Any = models.BigIntegerField()

                class Meta:
                    app_label = "receipts"

            monkeypatch.setattr(apps, "get_models", lambda *args, **kwargs: [Numbered, Receipt, SignedCharge])
            found = [message for message in check_payloads(None) if message.id == "pgqueue.E019"]
        assert [message.msg.partition(",")[0] for message in found] == [
            "The primary key of receipts.Numbered is 'number'"
        ]


class Elsewhere:
    def db_for_write(self, model: Any, **hints: Any) -> str | None:
        return "other" if model._meta.app_label == "receipts" else None


class NoReceipts:
    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool:
        return app_label != "receipts"


class TestRenamedColumn:
    """A column that is a key or the group of a payload is renamed."""

    @pytest.fixture(autouse=True)
    def renamed(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE receipts_visit RENAME customer_name TO client_name")

    def insert(self) -> int:
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO receipts_visit (client_name) VALUES ('ann') RETURNING job_id")
            found: int = cursor.fetchone()[0]
        return found

    def test_rows_are_refused_rather_than_jobs_without_a_group(self) -> None:
        with pytest.raises(ProgrammingError, match=r"receipts_visit has no column customer_name") as caught:
            self.insert()
        assert "run manage.py migrate" in str(caught.value)

    def test_a_check_tells(self) -> None:
        (error,) = check_payload_triggers(None, databases=["default"])
        assert (error.id, "has no column 'customer_name'" in error.msg) == ("pgqueue.E029", True)

    def test_a_migrate_of_the_new_code_declares_the_new_name(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Visit._meta.get_field("customer"), "column", "client_name")
        call_command("migrate", verbosity=0)
        assert Job.objects.get(pk=self.insert()).group_key == "ann"


def test_a_renamed_field_works_after_the_same_migrate(monkeypatch: pytest.MonkeyPatch) -> None:
    """The new code, and the migration that Django wrote for it."""
    state = ProjectState()
    state.add_model(ModelState("receipts", "Visit", [("customer_name", models.CharField(max_length=50))]))
    rename = migrations.RenameField("Visit", "customer_name", "guest")
    renamed = state.clone()
    rename.state_forwards("receipts", renamed)
    with connection.schema_editor() as editor:
        rename.database_forwards("receipts", editor, state, renamed)
    monkeypatch.setattr(Visit._meta.get_field("customer"), "column", "guest")
    call_command("migrate", verbosity=0)
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO receipts_visit (guest) VALUES ('ann') RETURNING job_id")
        assert Job.objects.get(pk=cursor.fetchone()[0]).group_key == "ann"
