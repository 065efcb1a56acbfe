"""``after``, ``Batch`` and ``chain`` in Python: what is stored, what is returned, what is refused."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import connections, transaction
from django.db.transaction import TransactionManagementError

from django_pgqueue import Batch, Unique, achain, aenqueue, chain, current_job, enqueue, enqueue_many, task
from django_pgqueue.compat import InvalidTask, TaskResultStatus
from django_pgqueue.exceptions import BatchFinished, JobExists, ParentGone
from django_pgqueue.jobs.enqueue import CHUNK
from django_pgqueue.models import BatchCounts, Job, JobBatch
from django_pgqueue.testing import run_jobs
from tests.app.worker_tasks import add
from tests.support.jobs import sql
from tests.support.workers import fresh

pytestmark = pytest.mark.django_db

SEEN: list[Any] = []


@task
def collect() -> list[Any]:
    parents = current_job().parents
    SEEN.append([(key, job.status) for key, job in parents.items()])
    return parents.results


@task(max_attempts=1)
def broken() -> None:
    raise ValueError("no")


@task
def spread(depth: int) -> None:
    batch = current_job().batch
    assert batch is not None
    batch.add(spread.bind(depth - 1) for _ in range(depth))


@task
async def spread_async() -> list[Any]:
    batch = await current_job().abatch()
    assert batch is not None
    await batch.aadd([add.bind(1, 1)])
    return (await current_job().aparents()).results


def status_of(*jobs: Job | int) -> list[str]:
    return [fresh(job).status for job in jobs]


def run() -> None:
    run_jobs(raise_failures=False)


def test_a_job_waits_for_its_parents_and_gets_their_results_in_order() -> None:
    one, two = enqueue(add, 1, 1), add.enqueue(2, 2)
    last = enqueue(collect.using(after=[two, one]))
    assert (last.status, last.enqueue_outcome) == ("blocked", "created")
    assert last.parent_ids == [int(two.id), one.pk]
    assert collect.get_result(str(last.pk)).status == TaskResultStatus.READY
    run()
    assert fresh(last).result == [4, 2]
    assert SEEN[-1] == [(int(two.id), "done"), (one.pk, "done")]
    failed = enqueue(broken)
    run()
    held = collect.using(after=failed)
    calls = (collect.using(after=one), held, held.using(if_failed="run"))
    assert [enqueue(each).status for each in calls] == ["pending", "blocked", "pending"], "they are over"


def test_a_parent_that_is_gone_is_named() -> None:
    one, two = enqueue(add, 1, 1), enqueue(add, 2, 2)
    last = enqueue(collect.using(after=[one, two]))
    run_jobs(limit=2)
    sql("DELETE FROM pgqueue_job WHERE id = %s", one.pk)
    run()
    assert fresh(last).errors[-1]["message"].startswith(f"Job {one.pk} is no longer kept")
    gone = f"there is no job or batch {one.pk}, "
    with pytest.raises(ParentGone, match=f"^{gone}so nothing can be enqueued"), transaction.atomic():
        enqueue(add.using(after=one), 1, 1)
    with pytest.raises(ParentGone, match=rf"^item 1: {gone}.* has passed\.$"):
        enqueue_many([add.bind(1, 1), add.using(after=one).bind(1, 1)])


def test_a_batch_is_one_transaction() -> None:
    with Batch("import") as batch:
        jobs = batch.add(add.bind(n, n) for n in range(3)).ids
        alone = enqueue(broken.using(batch=batch.id))
        last = enqueue(collect.using(after=batch.id))
        cleanup = enqueue(collect.using(after=batch, if_failed="run"))
        assert batch.is_open
    assert (batch.is_open, batch.is_finished, batch.outcome, batch.name) == (False, False, "", "import")
    assert fresh(alone).batch_id == batch.id
    assert list(batch.jobs.order_by("pk").values_list("pk", flat=True)) == [*jobs, alone.pk]
    assert batch.counts() == BatchCounts(added=4, done=0, failed=0, cancelled=0)
    assert batch.counts().live == 4
    batch.close()
    run()
    batch.refresh()
    assert (batch.is_finished, batch.outcome) == (True, "failed")
    assert batch.finished_at is not None
    assert batch.counts() == (4, 3, 1, 0)
    assert status_of(last, cleanup) == ["blocked", "done"]
    assert fresh(cleanup).result == [[0, 2, 4, None]]
    words = rf"^batch {batch.id} is finished\. It has ended as failed at"
    with pytest.raises(BatchFinished, match=words), transaction.atomic():
        batch.add([add.bind(1, 1)])
    assert (batch.retry_failed(), batch.is_finished, batch.retry_failed()) == (1, False, 0)
    assert (batch.cancel(), batch.is_finished, batch.outcome, batch.cancel()) == (1, True, "cancelled", 0)
    for given in ("x", "5", True, None):
        with pytest.raises(TypeError, match=r"Batch.get\(batch\) takes the id of a batch, an int, not "):
            Batch.get(given)  # type: ignore[arg-type]


@pytest.mark.promise("flow-all-or-none")
def test_what_fails_in_the_block_leaves_nothing() -> None:
    batch = Batch("import")
    with pytest.raises(ZeroDivisionError), batch:
        batch.add([add.bind(1, 1)] * (1 // 0))
    assert (Job.objects.count(), JobBatch.objects.count()) == (0, 0)
    assert repr(batch) == "<Batch not open 'import'>"
    with pytest.raises(TypeError), batch:
        batch.add(add.bind() for n in range(3))  # type: ignore[call-arg]
    with batch:
        assert not batch.add([])
        with pytest.raises(ValueError, match=r"<Batch \d+ 'import'> was opened before\. Make another"):
            batch.__enter__()
    assert (batch.is_finished, batch.outcome) == (True, "done")
    wrong: Any = add
    with pytest.raises(TypeError, match=r"Batch\.add\(\) takes calls such as task\.bind\(1\), not Task"):
        batch.add([wrong])


def test_a_batch_that_was_rolled_back_does_not_exist() -> None:
    with transaction.atomic():
        batch = Batch.open("import")
        transaction.set_rollback(True)
    with pytest.raises(ParentGone, match=f"^there is no batch {batch.id}"), transaction.atomic():
        batch.add([add.bind(1, 1)])
    with pytest.raises(JobBatch.DoesNotExist, match=f"Batch {batch.id} is not in the database 'default'"):
        batch.refresh()
    gone = rf"there is no batch {batch.id}\."
    for act in (batch.close, batch.cancel, batch.retry_failed):
        with pytest.raises(JobBatch.DoesNotExist, match=gone), transaction.atomic():
            act()


@pytest.mark.promise("batch-grows")
def test_a_batch_grows_from_its_own_jobs() -> None:
    with Batch() as batch:
        batch.add([spread.bind(2)])
        last = enqueue(collect.using(after=batch))
    run()
    assert batch.counts() == (5, 5, 0, 0)
    assert fresh(last).status == "done"


def test_a_job_of_a_batch_cannot_wait_for_what_waits_for_the_batch() -> None:
    batch, other = Batch.open("one"), Batch.open("two")
    first = enqueue(add.using(batch=batch), 1, 1)
    last = enqueue(collect.using(after=batch))
    between = enqueue(collect.using(after=last, batch=other))
    enqueue(collect.using(after=first, batch=batch))
    enqueue(collect.using(after=last))
    for parent in (last, between, other):
        message = f"a job of batch {batch.id} cannot run after something that waits for this batch"
        with pytest.raises(InvalidTask, match=rf"^{message}\. Leave out the batch"), transaction.atomic():
            enqueue(collect.using(after=parent, batch=batch))
        with pytest.raises(InvalidTask, match=rf"^item 1: {message}"), transaction.atomic():
            batch.add([add.bind(1, 1), collect.using(after=[first, parent]).bind()])
    batch.close()
    other.close()
    run()
    assert status_of(last, between) == ["done", "done"]


def test_many_members_go_in_chunks_and_mix_tasks() -> None:
    with Batch() as batch:
        ids = batch.add(add.bind(n, n) if n % 2 else collect.bind() for n in range(CHUNK + 3)).ids
    assert len(set(ids)) == batch.counts().added == CHUNK + 3


def test_calls_of_several_batches_in_one_statement() -> None:
    one, two = Batch.open(), Batch.open()
    first = enqueue(add, 1, 1)
    ids = enqueue_many(
        [
            add.using(batch=one, unique_key="u", unique=Unique()).bind(1, 1),
            add.using(batch=one, after=first).bind(1, 1),
            add.using(batch=two).bind(1, 1),
            add.bind(1, 1),
        ]
    ).ids
    assert [fresh(job).batch_id for job in ids] == [one.id, one.id, two.id, None]
    assert (one.counts().added, two.counts().added) == (2, 1)
    known, new = (add.using(unique_key=key, unique=Unique()).bind(1, 1) for key in ("u", "v"))
    again, twin, same, last = one.add([known, new, new, add.using(after=first).bind(1, 1)]).ids
    assert (again, twin) == (ids[0], same)
    assert (fresh(last).batch_id, fresh(last).parent_ids) == (one.id, [first.pk])
    assert one.counts().added == 4


@pytest.mark.promise("flow-all-or-none")
def test_a_chain_is_all_or_nothing() -> None:
    first = enqueue(add, 5, 5)
    jobs = chain([add.bind(1, 1), collect.using(after=first, priority=5).bind(), collect.bind()])
    assert [job.parent_ids for job in jobs] == [None, [first.pk, jobs[0].pk], [jobs[1].pk]]
    run()
    assert fresh(jobs[-1]).result == [[10, 2]]
    before = Job.objects.count()
    wrong: Any = add
    with pytest.raises(TypeError):
        chain([add.bind(1, 1), add.bind()])  # type: ignore[call-arg]
    with pytest.raises(ParentGone):
        chain([add.bind(1, 1), add.using(after=2**40).bind(1, 1)])
    assert chain([]) == []
    with pytest.raises(TypeError, match=r"not Task\("):
        chain([add.bind(1, 1), wrong])
    wrong = [add.bind(1, 1), add.bind(2, 2)]
    with pytest.raises(TypeError, match=r"calls such as task\.bind\(1\), not \["):
        chain([wrong])
    assert Job.objects.count() == before


def test_the_async_forms() -> None:
    async def enqueue_all() -> tuple[Batch, list[Job]]:
        batch = await Batch.aopen("import")
        await batch.aadd([add.bind(1, 1)])
        await aenqueue(spread_async.using(batch=batch))
        await batch.aclose()
        jobs = await achain([add.bind(1, 1), collect.bind()], if_failed="run")
        other = await Batch.aopen()
        await other.aclose()
        assert (await Batch.aget(other.id)).outcome == "done"
        assert await other.aretry_failed() == await other.acancel() == 0
        broken_off = await Batch.aopen()
        await broken_off.aadd([add.bind(1, 1)])
        await broken_off.acancel()
        await broken_off.arefresh()
        with pytest.raises(TypeError, match=r"await Batch\.aopen"):
            await Batch("import").__aenter__()
        assert (broken_off.outcome, (await broken_off.acounts()).cancelled) == ("cancelled", 1)
        return batch, jobs

    batch, jobs = async_to_sync(enqueue_all)()
    run()
    assert batch.counts() == (3, 3, 0, 0)
    assert [job.result for job in batch.jobs.filter(task_path=spread_async.module_path)] == [[]]
    assert fresh(jobs[1]).result == [2]


def test_join() -> None:
    with Batch("import") as batch:
        batch.add([add.bind(1, 1)])
    run()
    assert batch.join(0).outcome == "done"
    assert async_to_sync(batch.ajoin)(0) is batch
    with pytest.raises(TransactionManagementError, match=r"^Batch x \(\d+\) is open, and no worker"):
        Batch.open("x").join(0)


@pytest.mark.django_db(transaction=True)
def test_the_poller_waits_for_a_batch() -> None:
    batch = Batch.open("x")
    with pytest.raises(TimeoutError, match=r"^Batch x \(\d+\) is not finished after 0 s: it is open\.$"):
        batch.join(0)
    with ThreadPoolExecutor() as pool:
        waiters = [pool.submit(joined, batch.id, how) for how in (Batch.join, async_to_sync(Batch.ajoin))]
        assert not wait(waiters, 0.05).done
        batch.close()
        assert [waiter.result() for waiter in waiters] == ["done", "done"]


def joined(batch: int, how: Any) -> str:
    """Join in a thread."""
    try:
        return str(how(Batch.of(batch, "default"), 20).outcome)
    finally:
        connections.close_all()


@pytest.mark.django_db(databases=["default", "other"])
def test_a_batch_in_another_database() -> None:
    with Batch("import", using="other") as batch:
        (job,) = batch.add([add.bind(1, 1)]).ids
        last = enqueue(collect.using(after=batch, database="other"))
        with pytest.raises(InvalidTask, match=rf"The batch {batch.id} is in the database 'other'"):
            batch.add([add.using(database="default").bind(1, 1)])
        with pytest.raises(InvalidTask, match=rf"the job or batch {last.pk} in the database 'other'"):
            chain([add.using(after=last).bind(1, 1)])
    run_jobs(using="other")
    assert Job.objects.using("other").get(pk=last.pk).result == [[2]]
    assert Batch.get(batch.id, using="other").outcome == "done"
    assert [each.pk for each in batch.jobs] == [job]
    assert not Job.objects.exists()


# ----------------------------------------------------------------------------
# Calls whose unique key is taken; the others are in test_unique.

keyed = add.using(unique_key="k")


def test_an_error_of_many_calls_names_the_item_whose_job_is_in_another_batch() -> None:
    with Batch() as first, Batch() as second:
        job = enqueue(keyed.using(batch=first), 1, 1)
        words = f"Item 2: job {job.pk} has the unique key 'k'"
        with pytest.raises(JobExists, match=words), transaction.atomic():
            enqueue_many([add.bind(1, 1), add.bind(1, 2), keyed.using(batch=second).bind(1, 1)])
    assert Job.objects.count() == 1


@pytest.mark.promise("unique-after")
def test_a_chain_refuses_a_call_whose_job_does_not_wait_for_the_one_before() -> None:
    job = enqueue(keyed, 1, 1)
    with pytest.raises(JobExists, match=f"Job {job.pk} has"), transaction.atomic():
        chain([add.bind(1, 1), keyed.bind(1, 1), add.bind(3, 3)])
    assert Job.objects.count() == 1
