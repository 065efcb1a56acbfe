"""A small steady load, so that the pages of the admin have something to show while somebody looks at them."""

from __future__ import annotations

import random

from django_pgqueue import enqueue
from example_project.search.models import Document
from example_project.search.tasks import index_document

MOST = 8  # jobs each time


class SteadyLoad:
    """Indexes documents again, a few at a time, in no order."""

    def __init__(self) -> None:
        self._documents = list(Document.objects.values_list("pk", flat=True))

    def __call__(self) -> None:
        """Enqueue a few jobs."""
        for document in random.sample(self._documents, min(len(self._documents), random.randint(0, MOST))):
            enqueue(index_document, document)
