"""The table of declared tasks; typed payloads: the functions of their triggers."""

from django.db import migrations, models

from ..operations import RunSQLFile


class Migration(migrations.Migration):
    dependencies = [("django_pgqueue", "0011_flows")]

    operations = [
        # Unmanaged, so that a flush does not empty it, and not by Django, which has no field for a table.
        RunSQLFile("task_v1.sql", "DROP TABLE pgqueue_task"),
        migrations.CreateModel(
            name="DeclaredTask",
            fields=[
                (
                    "task_path",
                    models.CharField(max_length=255, primary_key=True, serialize=False, verbose_name="task"),
                ),
                ("queue_name", models.CharField(max_length=100, verbose_name="queue")),
                ("priority", models.SmallIntegerField(verbose_name="priority")),
                ("max_attempts", models.IntegerField(null=True, verbose_name="maximum attempts")),
                ("timeout", models.IntegerField(null=True, verbose_name="timeout in seconds")),
                (
                    "on_lost",
                    models.CharField(max_length=8, null=True, verbose_name="if the worker is lost"),
                ),
                ("expires_after", models.FloatField(null=True, verbose_name="expires after seconds")),
                ("metadata", models.JSONField(default=dict, verbose_name="metadata")),
                (
                    "limit_name",
                    models.CharField(max_length=200, null=True, verbose_name="name of the limit"),
                ),
                ("unique_options", models.JSONField(null=True, verbose_name="unique")),
                ("computed_keys", models.JSONField(default=list, verbose_name="computed keys")),
                ("model", models.CharField(max_length=255, null=True, verbose_name="model")),
                ("relation", models.CharField(max_length=255, null=True, verbose_name="table")),
                (
                    "limit_column",
                    models.CharField(max_length=63, null=True, verbose_name="column of the limit key"),
                ),
                (
                    "group_column",
                    models.CharField(max_length=63, null=True, verbose_name="column of the group"),
                ),
                ("keeps", models.BooleanField(db_default=False, verbose_name="keeps its rows")),
                ("swept_to", models.BigIntegerField(db_default=0, verbose_name="swept to")),
            ],
            options={
                "verbose_name": "declared task",
                "verbose_name_plural": "declared tasks",
                "db_table": "pgqueue_task",
                "default_permissions": (),
                "managed": False,
                "required_db_vendor": "postgresql",
            },
        ),
        RunSQLFile("declare_tasks_v1.sql", "DROP FUNCTION pgqueue_declare_tasks_v1"),
        RunSQLFile("policy_v1.sql", "DROP FUNCTION pgqueue_policy_v1"),
        # The triggers of payloads
        RunSQLFile("insert_keyed_payloads_v1.sql", "DROP FUNCTION pgqueue_insert_keyed_payloads_v1"),
        RunSQLFile("payload_insert_v1.sql", "DROP FUNCTION pgqueue_payload_insert_v1"),
        RunSQLFile("payload_update_v1.sql", "DROP FUNCTION pgqueue_payload_update_v1"),
        RunSQLFile("payload_delete_v1.sql", "DROP FUNCTION pgqueue_payload_delete_v1"),
        RunSQLFile("payload_paths_v1.sql", "DROP FUNCTION pgqueue_payload_paths_v1"),
        RunSQLFile("drop_payload_triggers_v1.sql", "DROP FUNCTION pgqueue_drop_payload_triggers_v1"),
        RunSQLFile("attach_payload_v1.sql", "DROP FUNCTION pgqueue_attach_payload_v1"),
        RunSQLFile("detach_payload_v1.sql", "DROP FUNCTION pgqueue_detach_payload_v1"),
        # Maintenance
        RunSQLFile("check_references_v1.sql", "DROP FUNCTION pgqueue_check_references_v1"),
        RunSQLFile("sweep_payloads_v1.sql", "DROP FUNCTION pgqueue_sweep_payloads_v1"),
    ]
