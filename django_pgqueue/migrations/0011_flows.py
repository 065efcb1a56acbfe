"""Composition: jobs that wait for jobs and batches, and the functions that let them run."""

import django.db.models.functions.datetime
from django.db import migrations, models

from ..operations import RunSQLFile


class Migration(migrations.Migration):
    dependencies = [("django_pgqueue", "0010_steps")]

    operations = [
        # Not by Django, because of the storage parameters and the partial indexes.
        migrations.SeparateDatabaseAndState(
            database_operations=[
                RunSQLFile("edge_v1.sql", "DROP TABLE pgqueue_edge"),
                RunSQLFile("batch_v1.sql", "DROP TABLE pgqueue_batch"),
                RunSQLFile("tally_v1.sql", "DROP TABLE pgqueue_tally"),
            ],
            state_operations=[
                migrations.CreateModel(
                    name="Edge",
                    fields=[
                        (
                            "pk",
                            models.CompositePrimaryKey(
                                "parent_id",
                                "child_id",
                                blank=True,
                                editable=False,
                                primary_key=True,
                                serialize=False,
                            ),
                        ),
                        ("parent_id", models.BigIntegerField(verbose_name="parent")),
                        ("child_id", models.BigIntegerField(verbose_name="child")),
                        (
                            "if_failed",
                            models.CharField(
                                choices=[
                                    ("hold", "wait until it is retried"),
                                    ("cancel", "cancel"),
                                    ("run", "run all the same"),
                                ],
                                db_default="hold",
                                max_length=6,
                                verbose_name="if the parent fails",
                            ),
                        ),
                        (
                            "overdue",
                            models.CharField(
                                max_length=16, null=True, verbose_name="end that maintenance has to settle"
                            ),
                        ),
                    ],
                    options={
                        "verbose_name": "dependency",
                        "verbose_name_plural": "dependencies",
                        "db_table": "pgqueue_edge",
                        "default_permissions": (),
                        "required_db_vendor": "postgresql",
                    },
                ),
                migrations.CreateModel(
                    name="JobBatch",
                    fields=[
                        ("id", models.BigAutoField(primary_key=True, serialize=False)),
                        (
                            "name",
                            models.CharField(blank=True, db_default="", max_length=200, verbose_name="name"),
                        ),
                        (
                            "is_open",
                            models.BooleanField(db_default=True, verbose_name="open for more members"),
                        ),
                        (
                            "created_at",
                            models.DateTimeField(
                                db_default=django.db.models.functions.datetime.Now(),
                                verbose_name="created at",
                            ),
                        ),
                        (
                            "cancel_requested_at",
                            models.DateTimeField(blank=True, null=True, verbose_name="cancel requested at"),
                        ),
                        (
                            "finished_at",
                            models.DateTimeField(blank=True, null=True, verbose_name="finished at"),
                        ),
                        (
                            "outcome",
                            models.CharField(
                                blank=True,
                                choices=[("done", "done"), ("failed", "failed"), ("cancelled", "cancelled")],
                                db_default="",
                                max_length=16,
                                verbose_name="outcome",
                            ),
                        ),
                    ],
                    options={
                        "verbose_name": "batch",
                        "verbose_name_plural": "batches",
                        "db_table": "pgqueue_batch",
                        "default_permissions": ("view",),
                        "required_db_vendor": "postgresql",
                    },
                ),
                migrations.CreateModel(
                    name="Tally",
                    fields=[
                        (
                            "pk",
                            models.CompositePrimaryKey(
                                "batch_id",
                                "slot",
                                blank=True,
                                editable=False,
                                primary_key=True,
                                serialize=False,
                            ),
                        ),
                        ("batch_id", models.BigIntegerField(verbose_name="batch")),
                        ("slot", models.BigIntegerField(verbose_name="slot")),
                        ("added", models.IntegerField(db_default=0, verbose_name="added")),
                        ("done", models.IntegerField(db_default=0, verbose_name="done")),
                        ("failed", models.IntegerField(db_default=0, verbose_name="failed")),
                        ("cancelled", models.IntegerField(db_default=0, verbose_name="cancelled")),
                    ],
                    options={
                        "verbose_name": "numbers of a batch",
                        "verbose_name_plural": "numbers of batches",
                        "db_table": "pgqueue_tally",
                        "default_permissions": (),
                        "required_db_vendor": "postgresql",
                    },
                ),
            ],
        ),
        RunSQLFile("job_batch_index_v1.sql", "DROP INDEX pgqueue_job_batch"),
        RunSQLFile(
            "job_past_batch_index_v1.sql",
            "DROP INDEX pgqueue_job_kept_batch, "
            + ", ".join(f"pgqueue_job_past_batch_{shelf}" for shelf in range(1, 9)),
        ),
        RunSQLFile("job_parents_index_v1.sql", "DROP INDEX pgqueue_job_parents"),
        RunSQLFile("job_waits_index_v1.sql", "DROP INDEX pgqueue_job_waits"),
        # Enqueue
        RunSQLFile("link_problem_v1.sql", "DROP FUNCTION pgqueue_link_problem_v1"),
        RunSQLFile("is_final_v1.sql", "DROP FUNCTION pgqueue_is_final_v1"),
        RunSQLFile("count_v1.sql", "DROP FUNCTION pgqueue_count_v1"),
        RunSQLFile("enter_batch_v1.sql", "DROP FUNCTION pgqueue_enter_batch_v1"),
        RunSQLFile("mark_v1.sql", "DROP FUNCTION pgqueue_mark_v1"),
        RunSQLFile("attach_once_v1.sql", "DROP FUNCTION pgqueue_attach_once_v1"),
        RunSQLFile("attach_v1.sql", "DROP FUNCTION pgqueue_attach_v1"),
        RunSQLFile("attach_trigger_v1.sql", "DROP TRIGGER pgqueue_attach ON pgqueue_edge"),
        RunSQLFile("wait_reason_v1.sql", "DROP FUNCTION pgqueue_wait_reason_v1"),
        RunSQLFile("cycle_v1.sql", "DROP FUNCTION pgqueue_cycle_v1"),
        RunSQLFile("link_v1.sql", "DROP FUNCTION pgqueue_link_v1"),
        RunSQLFile("linked_v1.sql", "DROP FUNCTION pgqueue_linked_v1"),
        # The end of jobs and batches
        RunSQLFile("lock_children_v1.sql", "DROP FUNCTION pgqueue_lock_children_v1"),
        RunSQLFile("lock_batches_v1.sql", "DROP FUNCTION pgqueue_lock_batches_v1"),
        RunSQLFile("end_batches_v1.sql", "DROP FUNCTION pgqueue_end_batches_v1"),
        RunSQLFile("cut_v1.sql", "DROP FUNCTION pgqueue_cut_v1"),
        RunSQLFile("unblock_v1.sql", "DROP FUNCTION pgqueue_unblock_v1"),
        RunSQLFile("hold_back_v1.sql", "DROP FUNCTION pgqueue_hold_back_v1"),
        RunSQLFile("reopen_v1.sql", "DROP FUNCTION pgqueue_reopen_v1"),
        # Batches
        RunSQLFile("open_batch_v1.sql", "DROP FUNCTION pgqueue_open_batch_v1"),
        RunSQLFile("open_batch.sql", "DROP FUNCTION pgqueue_open_batch"),
        RunSQLFile("close_batch_v1.sql", "DROP FUNCTION pgqueue_close_batch_v1"),
        RunSQLFile("close_batch.sql", "DROP FUNCTION pgqueue_close_batch"),
        RunSQLFile("cancel_batch_v1.sql", "DROP FUNCTION pgqueue_cancel_batch_v1"),
        RunSQLFile("cancel_batch.sql", "DROP FUNCTION pgqueue_cancel_batch"),
        RunSQLFile("retry_batch_v1.sql", "DROP FUNCTION pgqueue_retry_batch_v1"),
        RunSQLFile("retry_batch.sql", "DROP FUNCTION pgqueue_retry_batch"),
        RunSQLFile("batch_counts_v1.sql", "DROP FUNCTION pgqueue_batch_counts_v1"),
        RunSQLFile("batch_counts.sql", "DROP FUNCTION pgqueue_batch_counts"),
        # Why a job waits
        RunSQLFile("parents_v1.sql", "DROP FUNCTION pgqueue_parents_v1"),
        RunSQLFile("parents.sql", "DROP FUNCTION pgqueue_parents"),
        RunSQLFile("parent_state_v1.sql", "DROP FUNCTION pgqueue_parent_state_v1"),
        # Maintenance
        RunSQLFile("repair_batches_v1.sql", "DROP FUNCTION pgqueue_repair_batches_v1"),
        RunSQLFile("repair_edges_v1.sql", "DROP FUNCTION pgqueue_repair_edges_v1"),
        RunSQLFile("sweep_batches_v1.sql", "DROP FUNCTION pgqueue_sweep_batches_v1"),
    ]
