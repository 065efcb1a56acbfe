"""A call does not wait without end for a transaction that holds its unique key."""

from django.db import migrations

from ..operations import RunSQLFile


class Migration(migrations.Migration):
    dependencies = [("django_pgqueue", "0028_many_queues")]

    operations = [
        RunSQLFile(
            "unique_patience_v1.sql",
            "SELECT pgqueue_unique_patience_v1(false); DROP FUNCTION pgqueue_unique_patience_v1",
        ),
    ]
