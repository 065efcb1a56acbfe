"""What one session at a time may do is guarded by rows, which a role without rights cannot lock."""

from django.db import migrations

from ..operations import RunSQLFile


class Migration(migrations.Migration):
    dependencies = [("django_pgqueue", "0017_roles")]

    operations = [
        RunSQLFile("duty_v1.sql", "DROP TABLE pgqueue_duty"),
        RunSQLFile("on_duty_v1.sql", "DROP FUNCTION pgqueue_on_duty_v1"),
        RunSQLFile(
            "guard_duties_v1.sql",
            "SELECT pgqueue_guard_duties_v1(false); DROP FUNCTION pgqueue_guard_duties_v1",
        ),
    ]
