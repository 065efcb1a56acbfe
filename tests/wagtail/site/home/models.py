"""A page with a picture, which can be searched."""

from __future__ import annotations

from django.db import models
from wagtail.admin.panels import FieldPanel
from wagtail.models import Page
from wagtail.search import index


class ArticlePage(Page):  # type: ignore[misc]
    body = models.TextField(blank=True)
    picture = models.ForeignKey(
        "wagtailimages.Image", null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )

    content_panels = [*Page.content_panels, FieldPanel("body"), FieldPanel("picture")]
    search_fields = [*Page.search_fields, index.SearchField("body")]
