"""Filters that write figures as everywhere else: ``{% load pgqueue_figures %}``."""

from __future__ import annotations

from django import template

from ..admin.display import breakable, dimmed, status_badge, time
from ..formatting import age, number, period, span, throughput
from ..monitoring.depth import capped

register = template.Library()
for function in (age, breakable, capped, dimmed, number, period, span, status_badge, throughput):
    register.filter(function.__name__, function)
register.filter("moment", time)
