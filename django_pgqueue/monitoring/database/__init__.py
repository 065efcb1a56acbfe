"""The state of the database as the queue needs it: ``parts`` and its statements."""

from __future__ import annotations
