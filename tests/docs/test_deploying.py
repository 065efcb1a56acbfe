"""The page about deployment, settings and roles: their files are read by what reads them, and are valid."""

from __future__ import annotations

import json
import logging
import logging.config
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from configparser import ConfigParser
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml
from django.core.checks import run_checks
from django.core.management import call_command, load_command_class
from django.test import override_settings

from django_pgqueue import conf
from django_pgqueue.postgres.aliases import same_database
from django_pgqueue.postgres.replicas import is_replica_of
from django_pgqueue.worker.supervisor.supervisor import KILL_AFTER
from tests.management.test_subcommands import run
from tests.support.databases import alias, migrate
from tests.support.jobs import fetch, value
from tests.support.loggers import loggers_restored
from tests.support.servers import Server, primary_and_standby
from tests.support.sessions import Connect, Connection, parameters_of
from tests.support.workers import until, working

from .shop import DOCS, EXAMPLES, committed, setting, statements

FILES = EXAMPLES / "deployment"


def read(name: str) -> str:
    return (FILES / name).read_text()


def unit() -> dict[str, str]:
    """The section of the systemd unit about the service."""
    parser = ConfigParser(strict=False, interpolation=None, delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment, method-assign]  # keys have capitals
    parser.read_string(read("pgqueue-worker.service"))
    return dict(parser["Service"])


def first(pattern: str, text: str) -> str:
    (found,) = re.findall(pattern, text, re.MULTILINE)
    return str(found)


SERVICE = unit()
COMPOSE: dict[str, Any] = yaml.safe_load(read("compose.yaml"))["services"]["worker"]
POD: dict[str, Any] = yaml.safe_load(read("kubernetes.yaml"))["spec"]["template"]["spec"]
FLY = tomllib.loads(read("fly.toml"))
RENDER: dict[str, Any] = yaml.safe_load(read("render.yaml"))["services"][0]
RAILWAY = tomllib.loads(read("railway.toml"))["deploy"]
ECS: dict[str, Any] = json.loads(read("ecs-task.json"))["containerDefinitions"][0]
#: The command line of each, and the seconds from SIGTERM to SIGKILL. A CMD of Docker is JSON, its exec form:
#: in the other one a shell would be process 1. Docker's own seconds are those of who runs it.
COMMANDS: dict[str, tuple[list[str], float | None]] = {
    "systemd": (shlex.split(SERVICE["ExecStart"]), float(SERVICE["TimeoutStopSec"])),
    "docker": (json.loads(first(r"^CMD (.*)$", read("Dockerfile"))), None),
    "compose": (COMPOSE["command"], float(COMPOSE["stop_grace_period"].removesuffix("s"))),
    "kubernetes": (POD["containers"][0]["command"], float(POD["terminationGracePeriodSeconds"])),
    "fly": (shlex.split(FLY["processes"]["worker"]), float(FLY["kill_timeout"])),
    "render": (shlex.split(RENDER["dockerCommand"]), float(RENDER["maxShutdownDelaySeconds"])),
    "railway": (shlex.split(RAILWAY["startCommand"]), float(RAILWAY["drainingSeconds"])),
    "ecs": (ECS["command"], float(ECS["stopTimeout"])),
    "procfile": (shlex.split(first(r"^worker:\s*(\S.*)$", read("Procfile"))), 30.0),  # Heroku's
}


def options(line: list[str]) -> Any:
    """What the command makes of the command line. Raises CommandError for what it does not know."""
    python, manage, command, *arguments = line
    assert (Path(python).name, manage, command) == ("python", "manage.py", "runqueueworker")
    return load_command_class("django_pgqueue", command).create_parser(manage, command).parse_args(arguments)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_command_takes_the_options_and_nobody_is_killed_within_the_grace(name: str) -> None:
    line, patience = COMMANDS[name]
    given = options(line)
    assert given.threads >= 1
    assert patience is None or patience > given.grace + KILL_AFTER


def test_platforms_wait_no_longer_than_they_can() -> None:
    most = {"fly": 300, "render": 300, "ecs": 120}  # seconds, as the page says
    assert {name: COMMANDS[name][1] for name in most if (COMMANDS[name][1] or 0) > most[name]} == {}
    assert FLY["kill_signal"] == "SIGTERM"
    assert FLY["http_service"]["processes"] == ["web"]  # Fly stops idle machines of a group with a service


def test_the_chart_makes_a_deployment_of_each_kind_of_worker() -> None:
    """Helm is not installed here: the few actions of the template are rendered as Helm does it."""
    values = yaml.safe_load(read("helm/values.yaml"))
    body = first(r"(?s)workers }}\n(.*)\n{{- end }}", read("helm/templates/workers.yaml"))
    for name, worker in values["workers"].items():
        actions = {
            "$.Release.Name": "mysite", "$name": name, "$.Values.image": values["image"],
            "$.Values.grace": values["grace"], "add $.Values.grace 15": values["grace"] + 15,
            "$.Values.secret": values["secret"], "toJson $worker.options": json.dumps(worker["options"]),
            "$worker.replicas": worker["replicas"], "$worker.memory": worker["memory"],
        }  # fmt: skip
        text = body
        for action, shown in actions.items():
            text = text.replace("{{ %s }}" % action, str(shown))  # noqa: UP031 - braces
        made = yaml.safe_load(text)
        pod = made["spec"]["template"]["spec"]
        container = pod["containers"][0]
        given = options(container["command"] + container["args"])
        assert pod["terminationGracePeriodSeconds"] > given.grace + KILL_AFTER
        assert {*given.queues, *given.exclude_queues} == {"slow"}
        assert made["spec"]["replicas"] == worker["replicas"]


def test_what_the_page_explains() -> None:
    assert (SERVICE["Type"], SERVICE["KillMode"], SERVICE["Restart"]) == ("notify", "mixed", "always")
    given, memory = options(COMMANDS["kubernetes"][0]), POD["containers"][0]["resources"]["limits"]["memory"]
    supervisor = 100  # megabytes; the page says what a small project takes
    assert given.max_memory * given.processes + supervisor < int(memory.removesuffix("Gi")) * 1024


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("there is no systemd-analyze here")
    text = read("pgqueue-worker.service")
    here = text.replace("/srv/mysite/.venv/bin/python", sys.executable)  # it looks whether that is there
    for written, complaints in ((here, False), (here.replace("KillMode=mixed", "KillMode=mixt"), True)):
        copy = tmp_path / "pgqueue-worker.service"
        copy.write_text(written)
        done = subprocess.run([analyze, "verify", "--man=no", str(copy)], check=False, text=True,
                              capture_output=True, timeout=60)  # fmt: skip
        if done.returncode and copy.name not in done.stderr:
            pytest.skip(f"systemd-analyze does not work here: {done.stderr[:200]}")
        assert (copy.name in done.stderr) == complaints, done.stderr


def test_the_settings_read_what_the_environment_file_has(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = dict(line.split("=", 1) for line in read("mysite.env").splitlines())
    assert SERVICE["EnvironmentFile"].removeprefix("-") == "/etc/mysite.env"
    assert {*re.findall(r'environ\["(\w+)"\]', (EXAMPLES / "settings" / "production.py").read_text())} == {
        *environment
    } - {"DJANGO_SETTINGS_MODULE"}
    for name, text in environment.items():
        monkeypatch.setenv(name, text)
    given = setting("production")
    assert given["ALLOWED_HOSTS"] == ["www.example.com", "example.com"]
    with override_settings(PGQUEUE=given["PGQUEUE"], TASKS=given["TASKS"]):
        assert conf.problems() == []
        assert conf.current().grace == options(COMMANDS["systemd"][0]).grace


# --- The settings


@pytest.mark.parametrize(
    "name", ["pgqueue", "capture_logs", "tasks", "tasks_queues", "tasks_databases", "testing"]
)
def test_settings_are_valid(name: str) -> None:
    with override_settings(**setting(name)):
        assert conf.problems() == []
        if name == "pgqueue":
            assert conf.current().failed_retention == timedelta(days=90)
        elif name == "capture_logs":
            assert conf.current().capture_logs == {"reports": 20, "*": 30}
        else:
            # These are about tasks, of which other tests may have left some behind.
            about_tasks = {"pgqueue.E007", "pgqueue.E031", "pgqueue.W002"}
            assert [each for each in run_checks(tags=["pgqueue"]) if each.id not in about_tasks] == []


@pytest.mark.parametrize(("name", "logger", "printed"), [
    ("logging", "django_pgqueue.worker.producer.producer", "one\ntwo\n"),
    ("logging", "django_pgqueue.job", "two\n"),
    ("job_logging", "shop.views", "INFO [job - -] one\nWARNING [job - -] two\n"),
])  # fmt: skip
def test_logging(name: str, logger: str, printed: str, capsys: pytest.CaptureFixture[str]) -> None:
    logging.getLogger("shop")  # what exists is restored
    with loggers_restored():
        logging.config.dictConfig(setting(name)["LOGGING"])
        logging.getLogger(logger).info("one")
        logging.getLogger(logger).warning("two")
    assert capsys.readouterr().err == printed


def test_databases(django_db_setup: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert setting("pooler")["DATABASES"]["default"]["PORT"] == "6432"
    monkeypatch.setenv("DATABASE_PORT", "5432")
    assert setting("pooler")["DATABASES"]["default"]["PORT"] == "5432"
    for milliseconds, shown in ((None, "30s"), ("5000", "5s")):
        if milliseconds:
            monkeypatch.setenv("STATEMENT_TIMEOUT", milliseconds)
        given = setting("statement_timeout")["DATABASES"]["default"]["OPTIONS"]
        with psycopg.connect(os.environ["DATABASE_URL"], **given) as connection:
            assert connection.execute("SHOW statement_timeout").fetchone() == (shown,)


# --- Roles: the statements of the page, by the logins that it makes

LOGINS = ("shop_web", "shop_worker")


@pytest.fixture
def owner(connect: Connect) -> Iterator[Connection]:
    """The connection of the owner, with the roles of the page."""
    owner = connect(autocommit=True)
    _drop(owner)
    owner.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")  # the default from PostgreSQL 15 on
    call_command("pgqueue", "roles", "--apply")
    try:
        yield owner
    finally:
        _drop(owner)


@pytest.mark.usefixtures("shop")
@committed
def test_the_logins_of_the_page(owner: Connection) -> None:
    owner.execute(statements("roles"))
    passwords = dict(re.findall(r"ROLE (\w+) LOGIN PASSWORD '([\w-]+)'", statements("roles")))
    enqueue, result = statements("result").split(";\n")[:2]
    with _login("shop_web", passwords) as web:
        job = value(web, enqueue)
        row = web.execute(re.sub(r"\b1\b", str(job), result)).fetchone()
        assert row == ("pending", False, None, None)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            web.execute("SELECT args FROM pgqueue_job")
    with _login("shop_worker", passwords) as worker:
        assert value(worker, "SELECT args FROM pgqueue_job WHERE id = %s", job) == [5]
        assert value(worker, "SELECT count(*) FROM shop_order") == 0
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            worker.execute("TRUNCATE shop_order")


def _login(name: str, passwords: dict[str, str]) -> Connection:
    return psycopg.connect(**{**parameters_of(), "user": name, "password": passwords[name]}, autocommit=True)


def _drop(owner: Connection) -> None:
    for name in LOGINS:
        if value(owner, "SELECT count(*) FROM pg_roles WHERE rolname = %s", name):
            owner.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")
    call_command("pgqueue", "roles", "--apply", "--drop")


@committed
def test_the_manifests_of_autoscalers_ask_for_the_slots() -> None:
    """The query of KEDA runs; the view has the value; and each divides by the slots of a container."""
    folder = EXAMPLES / "autoscaling"
    [by_query] = yaml.safe_load_all((folder / "keda-postgresql.yaml").read_text())
    [trigger] = by_query["spec"]["triggers"]
    assert fetch(trigger["metadata"]["query"]) == [(0,)]
    secret, by_view = yaml.safe_load_all((folder / "keda-metrics-api.yaml").read_text())
    [asked] = by_view["spec"]["triggers"]
    assert asked["authenticationRef"]["name"] == secret["metadata"]["name"]
    assert asked["metadata"]["valueLocation"] in json.loads(run("scale-hint", "--json"))
    [metric] = yaml.safe_load((folder / "hpa.yaml").read_text())["spec"]["metrics"]
    assert metric["external"]["metric"]["name"] == "pgqueue_wanted_slots"
    threads = shlex.split(" ".join(POD["containers"][0]["command"]))
    slots = threads[threads.index("--threads") + 1]
    assert {
        trigger["metadata"]["targetQueryValue"],
        asked["metadata"]["targetValue"],
        metric["external"]["target"]["averageValue"],
    } == {slots}


# --- The arithmetic of the page about scaling, from the measured points


MEASURED = json.loads((DOCS / "_static/performance/points.json").read_text())["points"]["no arguments"]
PAGE = (DOCS / "explanation/scaling.md").read_text()
DAY = 86_400
WAL = MEASURED["WAL: enqueue_many()"] + MEASURED["WAL: worker"]
NETWORK = sum(
    MEASURED[f"network: {what} {way} the server"]
    for what in ("enqueue()", "worker")
    for way in ("to", "from")
)
RING = 8 / 6  # how many times the retention its eight shelves span, at most
CPU = 55e-6


def size(count: float) -> str:
    """Write bytes with two digits."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 995:
            return f"{float(f'{count:.2g}'):g} {unit}"
        count /= 1_000
    raise AssertionError(count)


def cores(count: float) -> str:
    return f"{100 * count:.2g} %" if count < 0.5 else f"{float(f'{count:.2g}'):g}"


@pytest.mark.parametrize("rate", [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000])
def test_each_row_follows_from_the_points(rate: int) -> None:
    week = rate * 7 * DAY * RING * MEASURED["kept job"]
    cells = [
        f"{rate:,}", f"{size(rate * WAL)}/s", size(rate * WAL * DAY), size(week),
        size(rate * 3_600 * RING * MEASURED["kept job"]), f"{size(rate * NETWORK)}/s", cores(rate * CPU),
    ]  # fmt: skip
    row = f"| {' | '.join(cells)} |"
    assert row in PAGE, row


def test_the_points_agree_with_the_benchmark() -> None:
    """Another program has measured the log of the server, in the drain of the page about performance."""
    figures = json.loads((DOCS / "_static/performance/figures.json").read_text())
    [drain] = [each for each in figures["scenarios"] if each["name"] == "history-off"]
    for measured in drain["rounds"]["history"]:
        assert measured["WAL bytes/job"] == pytest.approx(WAL, rel=0.05)


# --- The settings of the page about high availability, with a primary and a real standby


def run_job(server: Server) -> None:
    """Enqueue a job on a server, and wait until the worker has done it."""
    job = server.ask("SELECT pgqueue_enqueue('tests.app.tasks.noop')")
    status = "SELECT status FROM pgqueue_job WHERE id = %s"
    until(lambda: server.ask(status, job) == ("done",), what="the job is done")


def several_hosts(name: str, *servers: Server) -> dict[str, Any]:
    """Return the keys of an alias with the OPTIONS of an example."""
    ports = ",".join(str(server.port) for server in servers)
    hosts = ",".join("127.0.0.1" for _ in servers)
    options = setting("replicas")["DATABASES"][name]["OPTIONS"]
    return {**servers[0].address(), "HOST": hosts, "PORT": ports, "OPTIONS": options}


@pytest.mark.django_db(transaction=True)
def test_a_worker_finds_the_server_that_accepts_changes_and_moves_on_after_its_death() -> None:
    with primary_and_standby() as pair:
        both = several_hosts("default", pair.standby, pair.primary)  # the standby is asked first
        with alias("pair", **both), alias("replica", **several_hosts("replica", pair.primary, pair.standby)):
            migrate("pair")
            assert not same_database("pair", "replica")
            assert is_replica_of("replica", "pair")
            with working(alias="pair"):
                run_job(pair.primary)
                pair.catch_up()
                pair.primary.crash()
                pair.promote()
                run_job(pair.standby)


@pytest.mark.django_db(transaction=True)
def test_the_examples_agree(settings: Any) -> None:
    failover, replicas = setting("failover")["DATABASES"], setting("replicas")
    assert failover["default"]["OPTIONS"] == replicas["DATABASES"]["default"]["OPTIONS"]
    settings.PGQUEUE = replicas["PGQUEUE"]
    ((primary, replica),) = conf.current().replicas.items()
    assert [primary, replica] == [*replicas["DATABASES"]]
    citus = setting("citus")
    settings.PGQUEUE = citus["PGQUEUE"]
    assert [*conf.current().shards] == [*citus["DATABASES"]]
