"""A job's life: enqueue, claim, finish, and control from outside."""

from __future__ import annotations
