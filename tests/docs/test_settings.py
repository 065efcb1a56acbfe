"""The examples of settings, each by itself."""

from __future__ import annotations

import logging
import logging.config
import os
from datetime import timedelta

import psycopg
import pytest
from django.core.checks import run_checks
from django.test import override_settings

from django_pgqueue import conf
from tests.support.loggers import loggers_restored

from .shop import setting


def test_the_pgqueue_example_is_valid() -> None:
    with override_settings(**setting("pgqueue")):
        assert conf.problems() == []
        assert conf.current().failed_retention == timedelta(days=90)


@pytest.mark.parametrize("name", ["tasks", "tasks_queues", "tasks_databases", "testing"])
def test_the_examples_of_backends_are_valid(name: str) -> None:
    with override_settings(**setting(name)):
        # These are about tasks, of which other tests may have left some behind.
        about_tasks = {"pgqueue.E007", "pgqueue.W002"}
        assert [each for each in run_checks(tags=["pgqueue"]) if each.id not in about_tasks] == []


def test_the_logging_example_is_valid(capsys: pytest.CaptureFixture[str]) -> None:
    with loggers_restored():
        logging.config.dictConfig(setting("logging")["LOGGING"])
        logging.getLogger("django_pgqueue.worker.producer.producer").info("connected")
        logging.getLogger("django_pgqueue.job").info("job 1 done")
        logging.getLogger("django_pgqueue.job").warning("job 2 retry")
    assert capsys.readouterr().err.split("\n") == ["connected", "job 2 retry", ""]


def test_the_pooler_example(monkeypatch: pytest.MonkeyPatch) -> None:
    assert setting("pooler")["DATABASES"]["default"]["PORT"] == "6432"
    monkeypatch.setenv("DATABASE_PORT", "5432")
    assert setting("pooler")["DATABASES"]["default"]["PORT"] == "5432"


def test_the_example_of_a_statement_timeout(django_db_setup: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for environment, shown in ((None, "30s"), ("5000", "5s")):
        if environment:
            monkeypatch.setenv("STATEMENT_TIMEOUT", environment)
        options = setting("statement_timeout")["DATABASES"]["default"]["OPTIONS"]
        with psycopg.connect(os.environ["DATABASE_URL"], **options) as connection:
            assert connection.execute("SHOW statement_timeout").fetchone() == (shown,)
