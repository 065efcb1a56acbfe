"""An ordinary Django app, with tasks and a model for the tests to use."""

from __future__ import annotations
