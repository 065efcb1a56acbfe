"""The banner that ``runqueueworker`` prints when it starts: what runs where, and the address of the admin.

It contains no secrets: only the host, the port and the names of the connection, and no user and no password.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import fields
from datetime import timedelta
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import django
from django.apps import apps
from django.db import router
from django.urls import NoReverseMatch, Resolver404, get_script_prefix, resolve, reverse
from psycopg import ConnectionInfo

from .. import conf
from ..formatting import counted, get_logger
from ..models import Job
from ..tasks.task import declared_tasks
from ..worker.options import WorkerOptions
from ._output import lines

logger = get_logger(__name__)


def banner(options: WorkerOptions, info: ConnectionInfo, *, checked: bool, list_tasks: bool) -> str:
    """Return the text. ``info``: of the open connection, because settings may use a service file or several
    hosts. ``checked``: whether the system checks have run, so that all tasks are imported.
    """
    try:
        ours = f"django_pgqueue {version('dj-pgqueue')}"
    except PackageNotFoundError:  # copied into a project
        ours = "django_pgqueue"
    server = f"PostgreSQL {info.server_version // 10_000}.{info.server_version % 10_000}"
    queues = [
        f"{name}:{options.weights[name]}" if name in options.weights else name for name in options.queues
    ]
    others = f"all but {', '.join(options.exclude_queues)}" if options.exclude_queues else "all"
    paths = sorted({task.module_path for task in declared_tasks()})
    if not checked:  # a worker process imports the module of a task when a job needs it
        tasks = f"{len(paths)} imported so far; others when a job needs them"
    elif paths:
        tasks = f"{len(paths)}" if list_tasks else f"{len(paths)} (-v 2 lists them)"
    else:
        tasks = "none found in the tasks modules of the installed apps"
    known = {
        "Database": f'{info.dbname} on {info.host}, port {info.port} (alias "{options.alias}")',
        "Queues": ", ".join(queues) or others,
        "Processes": _processes(options),
        "Settings": _settings(),
        "Admin": ", ".join(admin_urls(options.alias)),
        "Tasks": tasks,
    }
    end = f"Press Ctrl-C to stop. Running jobs then have {options.grace:g} s to finish."
    if options.burst:
        end = "The command ends when no more jobs are due."
    elif options.one_process:
        end = "Press Ctrl-C to stop. A job that runs is finished first."
    head = f"{ours} (Django {django.get_version()}, Python {platform.python_version()}, {server})"
    listed = [f"             {path}" for path in paths] if list_tasks else []
    return "\n".join([head, "", *lines(known), *listed, "", end])


def admin_urls(alias: str) -> list[str]:
    """Return the URL of the overview in each admin site that shows the jobs of the database ``alias``."""
    if not apps.is_installed("django.contrib.admin"):
        return []
    from django.contrib.admin.sites import all_sites  # this must not be imported if it is not installed

    found = set()
    for site in all_sites:
        if not site.is_registered(Job):
            continue
        shown = getattr(site.get_model_admin(Job), "database", None) or router.db_for_read(Job)
        if shown != alias:
            continue
        try:
            url = reverse(f"{site.name}:django_pgqueue_job_overview")
            # If a site is not in the URLconf, reverse() may return the URL of another one, because "admin" is
            # the namespace of all sites.
            if resolve(f"/{url.removeprefix(get_script_prefix())}").namespaces[-1] == site.name:
                found.add(url)
        except (NoReverseMatch, Resolver404):
            continue
        except Exception as error:  # modules of the URLconf may raise anything; a worker does not need them
            logger.debug("the URLconf cannot be loaded: %s", error)
    return sorted(found)


def _processes(options: WorkerOptions) -> str:
    if options.one_process:
        return "only this one: one job at a time, without timeouts"
    each = ", each" if options.processes > 1 else ""
    parts = [f"{options.processes}{each} with {counted(options.threads, 'thread')}"]
    if options.async_slots is not None:
        parts[0] += f" and {counted(options.async_slots, 'async slot')}"
    if options.max_jobs is not None:
        parts.append(f"replaced after {counted(options.max_jobs, 'job')}")
    if options.max_memory is not None:
        parts.append(f"replaced at {options.max_memory} MB of memory")
    return "; ".join(parts)


def _settings() -> str:
    default, current = conf.Settings(), conf.current()
    changed = [
        f"{name.upper()} = {_value(name, getattr(current, name))}"
        for name in sorted(field.name for field in fields(current))
        if getattr(current, name) != getattr(default, name)
    ]
    return ", ".join(changed) or "the defaults"


def _value(name: str, value: Any) -> str:
    if name.upper() == conf.SECRET:
        return "(hidden)"
    if isinstance(value, timedelta):
        days = value / timedelta(days=1)
        return counted(int(days), "day") if days.is_integer() else f"{value.total_seconds():g} s"
    if isinstance(value, Mapping):
        one = "schedule" if name == "schedules" else "entry"
        return counted(len(value), one, "entries" if one == "entry" else "")
    return f"{value:g}" if isinstance(value, float) else f"{value}"
