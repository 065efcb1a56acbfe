"""The list of mutations does not rot: each of them still fits the source."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from pathlib import Path

from .program import ROOT, mutations


def test_each_mutation_applies_to_the_present_source(tmp_path: Path) -> None:
    for mutation in mutations():
        target = tmp_path / "django_pgqueue" / mutation.file
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / "django_pgqueue" / mutation.file, target)
        mutation.apply(tmp_path)


def test_the_tests_that_should_notice_exist() -> None:
    missing = []
    for mutation in mutations():
        assert mutation.tests, mutation.name
        for test in mutation.tests:
            file, _, name = test.partition("::")
            text = (ROOT / file).read_text()
            if name and not re.search(rf"def {name.partition('[')[0]}\b", text):
                missing.append(test)
    assert missing == []


def test_no_guarantee_stands_twice() -> None:
    names = Counter(mutation.name for mutation in mutations())
    assert [name for name, count in names.items() if count > 1] == []
