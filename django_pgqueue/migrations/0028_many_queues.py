"""A search through very many queues takes few steps."""

from django.db import migrations

from ..operations import RunSQLFile


class Migration(migrations.Migration):
    dependencies = [("django_pgqueue", "0022_dumps")]

    operations = [
        RunSQLFile("first_of_priorities_v1.sql", "DROP FUNCTION pgqueue_first_of_priorities_v1"),
        RunSQLFile("first_of_queues_v1.sql", "DROP FUNCTION pgqueue_first_of_queues_v1"),
        RunSQLFile("first_due_v2.sql", "DROP FUNCTION pgqueue_first_due_v2"),
        RunSQLFile(
            "search_once_v1.sql",
            "SELECT pgqueue_search_once_v1(false); DROP FUNCTION pgqueue_search_once_v1",
        ),
    ]
