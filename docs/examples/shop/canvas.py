from django_pgqueue import Batch, chain, current_job, enqueue, task
from django_pgqueue.models import Job

REPORTS: list[str] = []


@task(max_attempts=1)
def add(x: int, y: int) -> int:
    return x + y


@task
def add_to_last(y: int) -> int:
    (last,) = current_job().parents.results
    return last + y


@task
def total() -> int:
    (numbers,) = current_job().parents.results
    return sum(numbers)


@task
def report() -> None:
    (job,) = current_job().parents.values()
    if job.status == "failed":
        REPORTS.append(f"{job.task_path} has failed: {job.errors[-1]['message']}")


def in_sequence() -> Job:
    *_, last = chain([add.bind(2, 2), add_to_last.bind(4), add_to_last.bind(8)])
    return last


def in_parallel() -> Batch:
    with Batch() as batch:
        batch.add(add.bind(i, i) for i in range(10))
    return batch


def sum_of_all() -> Job:
    with Batch() as batch:
        batch.add(add.bind(i, i) for i in range(10))
        return enqueue(total.using(after=batch))


def with_callbacks() -> Job:
    job = enqueue(add, 2, 2)
    enqueue(add_to_last.using(after=job, if_failed="cancel"), 16)
    enqueue(report.using(after=job, if_failed="run"))
    return job


@task
def add_all(pairs: list[tuple[int, int]]) -> list[int]:
    return [x + y for x, y in pairs]


def in_chunks() -> Batch:
    pairs = [(i, i) for i in range(100)]
    with Batch() as batch:
        batch.add(add_all.bind(pairs[start : start + 10]) for start in range(0, 100, 10))
    return batch


def in_one_task() -> Job:
    return enqueue(add_all, [(2, 2), (4, 4)])


@task
def count_down(number: int) -> None:
    batch = current_job().batch
    if number and batch is not None:
        batch.add([count_down.bind(number - 1)])


def count_down_from(number: int) -> Batch:
    with Batch() as batch:
        batch.add([count_down.bind(number)])
    return batch
