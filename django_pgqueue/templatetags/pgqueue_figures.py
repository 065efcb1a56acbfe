"""Filters that write figures as everywhere else: ``{% load pgqueue_figures %}``."""

from __future__ import annotations

from django import template

from ..admin.display import dimmed
from ..formatting import age, number, period, throughput
from ..monitoring.depth import capped

register = template.Library()
for function in (age, capped, dimmed, number, period, throughput):
    register.filter(function.__name__, function)
