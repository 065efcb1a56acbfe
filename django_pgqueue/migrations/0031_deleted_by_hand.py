"""Members and parents that were deleted by hand count as cancelled."""

from django.db import migrations

from ..operations import RunSQLFile


class Migration(migrations.Migration):
    dependencies = [("django_pgqueue", "0030_side_writes")]

    operations = [
        RunSQLFile("end_batches_v2.sql", "DROP FUNCTION pgqueue_end_batches_v2"),
        RunSQLFile(
            "tell_deleted_v1.sql",
            "SELECT pgqueue_tell_deleted_v1(false); DROP FUNCTION pgqueue_tell_deleted_v1",
        ),
    ]
