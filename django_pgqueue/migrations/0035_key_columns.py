"""A payload whose key or group has no column is refused."""

from django.db import migrations

from ..operations import RunSQLFile


class Migration(migrations.Migration):
    dependencies = [("django_pgqueue", "0034_unique_links")]

    operations = [
        RunSQLFile("check_key_columns_v1.sql", "DROP FUNCTION pgqueue_check_key_columns_v1"),
        RunSQLFile(
            "look_for_key_columns_v1.sql",
            "SELECT pgqueue_look_for_key_columns_v1(false); DROP FUNCTION pgqueue_look_for_key_columns_v1",
        ),
    ]
