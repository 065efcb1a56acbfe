from datetime import timedelta

from django_pgqueue import JobContext, task


@task(takes_context=True, max_attempts=5, timeout=60)
def export_orders(context: JobContext, year: int) -> str:
    if context.attempt > 1:
        print("Again, after", context.task_result.errors[-1].exception_class_path)
    for _month in range(12):
        if context.job.cancel_requested:
            break
        context.job.extend(timedelta(minutes=1))
    return f"{year}, job {context.job.pk}"
