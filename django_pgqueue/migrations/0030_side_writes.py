"""Progress that a role may not delete does not keep its job from ending."""

from django.db import migrations

from ..operations import RunSQLFile


class Migration(migrations.Migration):
    dependencies = [("django_pgqueue", "0029_bounds")]

    operations = [
        RunSQLFile(
            "forget_progress_v1.sql",
            "SELECT pgqueue_settle_progress_v1(false); DROP FUNCTION pgqueue_settle_progress_v1;"
            " DROP FUNCTION pgqueue_forget_progress_v1",
        ),
    ]
