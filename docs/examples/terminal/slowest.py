"""Print the jobs that have run longest, from the JSON of "pgqueue jobs --status running"."""

import json
import sys
from datetime import UTC, datetime

document = json.load(sys.stdin)
for job in sorted(document["jobs"], key=lambda job: job["last_attempted_at"])[:5]:
    seconds = (datetime.now(UTC) - datetime.fromisoformat(job["last_attempted_at"])).total_seconds()
    print(f"{job['id']} {job['task']} {seconds:.0f} s on {job['worker_name']}")
