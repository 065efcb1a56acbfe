from django_pgqueue import Batch, enqueue, task
from django_pgqueue.models import Job

RESIZED: list[int] = []


@task
def resize(photo_id: int) -> None:
    RESIZED.append(photo_id)


@task
def build_page(album: str) -> str:
    return f"/albums/{album}/"


@task
def announce(album: str) -> None:
    print(f"{album} is ready")


def publish_album(album: str, photos: list[int]) -> Job:
    with Batch(album) as batch:
        batch.add(resize.bind(photo) for photo in photos)
        page = enqueue(build_page.using(after=batch), album)
        enqueue(announce.using(after=page), album)
    return page
