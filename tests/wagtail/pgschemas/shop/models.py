"""What each tenant has."""

from __future__ import annotations

from typing import ClassVar

from django.db import models


class Order(models.Model):
    email = models.EmailField()

    objects: ClassVar[models.Manager[Order]] = models.Manager()  # the types know only installed apps
