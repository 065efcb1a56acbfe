"""The system checks, which Django runs before it starts. Each message has an id, a hint and a page.

tasks      settings, tasks and schedules; these do not query the database
backends   TASKS
payloads   models of payloads, their triggers, and references to rows of the queue
database   what is in the database: ``check --database``
"""

from __future__ import annotations
