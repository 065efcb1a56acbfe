"""How large the jobs may be of a role that may only enqueue: the server decides."""

from django.db import migrations

from ..operations import RunSQLFile


class Migration(migrations.Migration):
    dependencies = [("django_pgqueue", "0019_sequence")]

    operations = [
        RunSQLFile("bound_v1.sql", "DROP TABLE pgqueue_bound"),
        RunSQLFile("retain_bound_v1.sql", "DROP FUNCTION pgqueue_retain_bound_v1"),
        RunSQLFile("check_size_v1.sql", "DROP FUNCTION pgqueue_check_size_v1"),
    ]
