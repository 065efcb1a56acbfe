"""Wagtail's tasks on this backend: each runs in a worker, and does what it is for."""

from __future__ import annotations

import io
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import django_tasks
import PIL.Image
import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.core.files.base import ContentFile
from django.core.management import call_command
from django.db import transaction
from django.test import Client
from django.utils.timezone import now
from django_tasks import exceptions, signals
from wagtail.documents.models import Document
from wagtail.images.models import Image
from wagtail.models import Page, ReferenceIndex
from wagtail.tasks import update_reference_index_task

from django_pgqueue.compat import is_task
from django_pgqueue.models import Job
from django_pgqueue.testing import RunningWorker, running_worker
from tests.support.waiting import until

from .home.apps import CENTER
from .home.models import ArticlePage
from .home.purging import purged
from .home.tasks import publish_scheduled

pytestmark = pytest.mark.wagtail

REFERENCES = "wagtail.tasks.update_reference_index_task"
DELETE_FILE = "wagtail.tasks.delete_file_from_storage_task"
FOCAL_POINT = "wagtail.images.tasks.set_image_focal_point_task"
PURGE = "wagtail.contrib.frontend_cache.tasks.purge_urls_from_cache_task"
SEARCH = "modelsearch.tasks.insert_or_update_object_task"
#: Of the page editor's form.
COMMENTS = {
    f"comments-{name}": 0 for name in ("TOTAL_FORMS", "INITIAL_FORMS", "MIN_NUM_FORMS", "MAX_NUM_FORMS")
}


@pytest.fixture(scope="module")
def media() -> Iterator[None]:
    """The folder of uploaded files, which is empty before and after the tests."""
    shutil.rmtree(settings.MEDIA_ROOT, ignore_errors=True)
    Path(settings.MEDIA_ROOT).mkdir(parents=True)
    yield
    shutil.rmtree(settings.MEDIA_ROOT)


@pytest.fixture(scope="module", autouse=True)
def worker(kept_database: None, media: None) -> Iterator[RunningWorker]:
    """A real worker. It takes as long to start as all tests take here."""
    with running_worker() as worker:
        yield worker


@contextmanager
def ran(worker: RunningWorker) -> Iterator[Counter[str]]:
    """Yield how often each task has run after the block: the jobs that it enqueues, and those that they
    enqueue. The block is a transaction, so that none of them runs before its end.
    """
    before = set(Job.objects.values_list("pk", flat=True))
    counts: Counter[str] = Counter()
    with transaction.atomic():
        yield counts
    seen: set[int] = set()
    while new := set(Job.objects.values_list("pk", flat=True)) - before - seen:
        for job in map(worker.join, sorted(new)):
            assert job.status == "done", (job.task_path, job.errors)
            counts[job.task_path] += 1
        seen |= new


def picture() -> ContentFile[bytes]:
    """Return a new file."""
    content = io.BytesIO()
    PIL.Image.new("RGB", (20, 20)).save(content, "PNG")
    return ContentFile(content.getvalue(), "square.png")


def article(**values: Any) -> Any:
    """Return a new page below the home page, which Wagtail's migrations have made."""
    return Page.objects.get(depth=2).add_child(instance=ArticlePage(live=False, **values))


@pytest.fixture
def editor(kept_database: None) -> Client:
    """Return the browser of somebody who may do everything in Wagtail's admin."""
    client = Client()
    client.force_login(User.objects.get_or_create(username="ann", is_superuser=True)[0])
    return client


def sent(client: Client, path: str, **fields: Any) -> None:
    """Send a form, and check that it was accepted."""
    answer = client.post(f"/admin/{path}", fields)
    assert answer.status_code == 302, answer.content.decode()


def test_these_are_all_tasks_of_wagtail() -> None:
    found = set()
    for package in map(import_module, ("wagtail", "modelsearch")):
        folder = Path(package.__path__[0])
        for file in folder.rglob("*.py"):
            parts = file.relative_to(folder.parent).with_suffix("").parts
            if "\n@task" in file.read_text() and not {"test", "tests"}.intersection(parts):
                module = import_module(".".join(parts))
                found |= {each.module_path for each in vars(module).values() if is_task(each)}
    assert found == {REFERENCES, DELETE_FILE, FOCAL_POINT, PURGE, SEARCH}


def test_what_the_package_django_tasks_offers(worker: RunningWorker) -> None:
    """What is not here does not work: see the table of the page "Use django.tasks"."""
    heard = []

    def hear(task_result: Any, **named: Any) -> None:
        heard.append(task_result.id)

    signals.task_enqueued.connect(hear)
    result = update_reference_index_task.enqueue("wagtailcore", "page", "2")
    signals.task_enqueued.disconnect(hear)
    assert heard == [result.id]
    assert worker.join(result).status == "done"
    done = update_reference_index_task.get_result(result.id)
    assert (done.status, done.return_value) == (django_tasks.TaskResultStatus.SUCCESSFUL, None)
    result.refresh()
    assert result.is_finished
    with pytest.raises(exceptions.TaskResultDoesNotExist):
        update_reference_index_task.get_result("999999999")
    with pytest.raises(exceptions.InvalidTaskError):
        update_reference_index_task.using(queue_name="")


def test_check_says_nothing() -> None:
    call_command("check", fail_level="WARNING", databases=["default"])


def test_publish(worker: RunningWorker, editor: Client) -> None:
    image = Image.objects.create(title="A square", file=picture())
    fields = {"title": "Quokkas", "slug": "quokkas", "body": "A quokka smiles.", "picture": image.pk}
    with ran(worker) as tasks:
        sent(editor, "pages/add/home/articlepage/2/", **fields, **COMMENTS, **{"action-publish": "1"})
        page = ArticlePage.objects.live().get(slug="quokkas")
        assert not ReferenceIndex.get_references_to(image).exists()
        assert not ArticlePage.objects.search("quokka")
    assert tasks.keys() == {REFERENCES, SEARCH, PURGE}
    assert [found.pk for found in ArticlePage.objects.live().search("quokka")] == [page.pk]
    assert [used.pk for used, _ in image.get_usage()] == [page.pk]
    assert purged() == ["http://localhost/quokkas/"]


def test_unpublish_and_delete_a_page(worker: RunningWorker, editor: Client) -> None:
    with ran(worker):
        page = article(title="Wombats", slug="wombats", body="A wombat digs.")
        page.save_revision().publish()
    assert ArticlePage.objects.live().search("wombat")
    with ran(worker) as tasks:
        sent(editor, f"pages/{page.pk}/unpublish/")
    assert tasks.keys() == {REFERENCES, SEARCH, PURGE}
    assert not ArticlePage.objects.live().search("wombat")
    with ran(worker):
        sent(editor, f"pages/{page.pk}/delete/")
    assert not ArticlePage.objects.search("wombat")


# Pillow's file in Wagtail's storage is closed when it is collected.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_upload_an_image_and_delete_it(worker: RunningWorker, editor: Client) -> None:
    with ran(worker) as tasks:
        sent(editor, "images/add/", title="A numbat", file=picture(), collection=1)
        image = Image.objects.get(title="A numbat")
        assert not image.has_focal_point()
    assert tasks.keys() == {REFERENCES, SEARCH, FOCAL_POINT}
    image.refresh_from_db()
    assert (image.focal_point_x, image.focal_point_y) == CENTER
    assert [found.pk for found in Image.objects.search("numbat")] == [image.pk]

    files = [Path(each.file.path) for each in (image, image.get_rendition("width-10"))]
    with ran(worker) as tasks:
        sent(editor, f"images/{image.pk}/delete/")
        assert all(file.exists() for file in files)
    assert tasks == {DELETE_FILE: 2}
    assert not any(file.exists() for file in files)


def test_upload_a_document_and_delete_it(worker: RunningWorker, editor: Client) -> None:
    with ran(worker) as tasks:
        sent(editor, "documents/add/", title="A bilby", file=ContentFile(b"ears", "bilby.txt"), collection=1)
    assert tasks.keys() == {REFERENCES, SEARCH}
    document = Document.objects.get()
    assert [found.pk for found in Document.objects.search("bilby")] == [document.pk]
    with ran(worker) as tasks:
        sent(editor, f"documents/delete/{document.pk}/")
        assert Path(document.file.path).exists()
    assert tasks == {DELETE_FILE: 1}
    assert not Path(document.file.path).exists()


def test_a_page_that_is_rolled_back_leaves_no_job() -> None:
    jobs = Job.objects.count()
    with pytest.raises(LookupError), transaction.atomic():  # noqa: PT012
        article(title="Gone", slug="gone")
        assert Job.objects.count() > jobs
        raise LookupError
    assert Job.objects.count() == jobs


def test_pages_are_published_at_their_time(worker: RunningWorker) -> None:
    with ran(worker) as tasks:
        page = article(title="Later", slug="later", go_live_at=now() - timedelta(minutes=1))
        page.save_revision(approved_go_live_at=page.go_live_at)
        publish_scheduled.enqueue()
    assert tasks[publish_scheduled.module_path] == 1
    page.refresh_from_db()
    assert page.live


def test_both_indexes_are_made_anew() -> None:
    image = Image.objects.create(title="A tree", file=picture())
    with transaction.atomic():
        page = article(title="Spines", slug="spines", body="An echidna digs.", picture=image)
        Job.objects.filter(status="pending").cancel()
    assert not ArticlePage.objects.search("echidna")
    call_command("wagtail_update_index", verbosity=0)
    call_command("rebuild_references_index", verbosity=0)
    assert [found.pk for found in ArticlePage.objects.search("echidna")] == [page.pk]
    assert [used.pk for used, _ in image.get_usage()] == [page.pk]


def test_the_jobs_of_a_deleted_page_fail(worker: RunningWorker) -> None:
    with transaction.atomic():
        article(title="Short", slug="short").delete()
        jobs = Job.objects.filter(status="pending")
        assert {job.task_path for job in jobs} == {REFERENCES, SEARCH}
        ids = [job.pk for job in jobs]
    for job in map(worker.join, ids):
        assert job.status == "failed"
        assert "matching query does not exist" in job.errors[-1]["message"]


def test_an_image_without_a_face_is_looked_at_again_and_again(worker: RunningWorker) -> None:
    """With any backend that runs tasks in another process. If Wagtail mends this, our page is wrong."""
    file = ContentFile(b"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 5 5'/>", "empty.svg")
    before = Job.objects.filter(task_path=FOCAL_POINT).count()
    image = Image.objects.create(title="Nothing", width=5, height=5, file=file)
    until(lambda: Job.objects.filter(task_path=FOCAL_POINT, status="done").count() > before + 3)
    image.delete()
    until(lambda: not Job.objects.filter(status__in=["pending", "running"]).exists())
