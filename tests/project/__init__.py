"""Tests of the repository itself: the commands of a checkout, the layers, the types."""

from __future__ import annotations
