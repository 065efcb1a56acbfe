"""The functions and the triggers: all changes of jobs, the wake-up, the maintenance, and what people ask for.

The triggers refuse changes that are no transition, wake a worker at the commit, check the size of jobs, and
follow edges and changes of the timing of schedules.
"""

from django.db import migrations

from ..operations import RunSQLFile

FILES = """
    names
    enqueue/problems enqueue/enqueue enqueue/many enqueue/unique relay
    flows/links flows/parents flows/batches flows/settle flows/repair
    claim/search claim/claim claim/wake
    finish/finish finish/one finish/errors finish/progress
    changes/cancel changes/retry changes/edit
    recover/give_back recover/recover workers
    limits/gate limits/room limits/release limits/limits limits/rates limits/pauses limits/blocked_by
    steps schedules payloads shards history
    stats/jobs stats/depth stats/scale stats/failures
    why/why why/held why/turn
    triggers
"""


class Migration(migrations.Migration):
    dependencies = [("django_pgqueue", "0001_initial")]

    operations = [RunSQLFile(f"{name}.sql") for name in FILES.split()]
