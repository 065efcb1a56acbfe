"""Roles that may only enqueue: what they may ask for, and what they may read. ``manage.py pgqueue roles``."""

from django.db import migrations

from ..operations import RunSQLFile


class Migration(migrations.Migration):
    dependencies = [("django_pgqueue", "0016_failures")]

    operations = [
        RunSQLFile("result_v1.sql", "DROP FUNCTION pgqueue_result_v1"),
        RunSQLFile("result.sql", "DROP FUNCTION pgqueue_result"),
    ]
