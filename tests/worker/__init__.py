"""Tests of the worker: claim, run, finish, in one process."""

from __future__ import annotations
