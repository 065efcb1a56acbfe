from django_pgqueue import current_job, task


@task
def report() -> dict[str, object]:
    job = current_job()
    return {
        "id": job.pk,
        "attempt": job.attempts,
        "queue": job.queue_name,
        "why": job.metadata.get("why"),
    }
