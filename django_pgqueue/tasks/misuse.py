"""Answer what people who know other queues type out of habit, with our word for it, also on command lines.

``send.delay(5)``, ``@task(retries=3)``, ``job.get()``: without this, Python says that there is no such name.
The words are in ``misuse.txt``, which is read at the first mistake. A word that is not there keeps Python's
own error. ``tests/tasks/test_misuse.py`` tries the words of other queues.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from functools import cache, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ..exceptions import RetryLater, Snooze
from ..formatting import did_you_mean

F = TypeVar("F", bound=Callable[..., Any])

_PERIODS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@cache
def words() -> dict[str, dict[str, str]]:
    """Return the words of ``misuse.txt``: by what they are used on, then by the word, ours."""
    found: dict[str, dict[str, str]] = {}
    owners: list[str] = []
    for line in Path(__file__).with_suffix(".txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            owners = line.strip("[]").split(", ")
        elif " -> " in line and not line.startswith("#"):
            theirs, ours = line.split(" -> ", 1)
            for owner in owners:
                found.setdefault(owner, {}).update(dict.fromkeys(theirs.split(), ours))
    return found


def hints(thing: F) -> F:
    """Decorate a function or a class, so that its error for a keyword of another queue names our word."""
    function, owner = thing, thing.__qualname__
    if isinstance(thing, type):
        function = thing.__init__  # type: ignore[misc]

    @wraps(function)
    def hinted(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except TypeError:
            # The function has no such parameter, so this is what is wrong. A right call costs nothing.
            if found := _remedies(owner, kwargs):
                raise TypeError(found) from None
            raise

    if isinstance(thing, type):
        thing.__init__ = hinted  # type: ignore[misc]
        return thing
    return hinted  # type: ignore[return-value]


def check_names(owner: str, given: Mapping[str, Any], known: Collection[str]) -> None:
    """Raise TypeError for keywords that a function with ``**options`` does not know, with the remedy."""
    if unknown := {name: given[name] for name in given if name not in known}:
        name = next(iter(unknown))
        raise TypeError(
            _remedies(owner, unknown)
            or f"{owner}() got an unexpected keyword argument {name!r}. "
            + did_you_mean(name.lower(), known, f"The options are {', '.join(sorted(known))}.")
        )


def _remedies(owner: str, given: Mapping[str, Any]) -> str:
    """Return what to write in place of keywords that other queues have; "" if they have none of these."""
    known = words().get(owner, {})
    return " ".join(
        f"{owner}() has no {word}=. Write {_ours(owner, word, given[word])}."
        for word in given
        if word in known
    )


def _ours(owner: str, word: str, value: Any) -> str:
    is_count = isinstance(value, int) and not isinstance(value, bool)
    return words()[owner][word].format(
        word=word,
        value=_shown(value),
        rate=rate_hint(value),
        run_after=_after(value),
        max_attempts=f"max_attempts={value + 1 if is_count else '...'}",
    )


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 and "<" not in text else "..."


def _after(delay: Any) -> str:
    """Return our words for a delay: a number of seconds, a timedelta, or the parts of one."""
    parts = {"seconds": delay} if isinstance(delay, (int, float)) else delay
    if isinstance(parts, Mapping):
        return f"run_after=timedelta({', '.join(f'{part}={value!r}' for part, value in parts.items())})"
    return f"run_after={_shown(delay)}"


def rate_hint(value: Any) -> str:
    """Return our words for a rate such as Celery's ``"100/m"``; a number of it is per second."""
    found = re.fullmatch(r"\s*(\d+)\s*(?:/\s*([smhd])[a-z]*\s*)?", str(value))
    if found is None or isinstance(value, bool):
        return "RateLimit(100, per=60)"
    return f"RateLimit({int(found[1])}, per={_PERIODS[found[2] or 's']})"


def hint_of_call(
    name: str,
    options: Container[str],
    args: Iterable[Any],
    kwargs: Mapping[str, Any],
    takes: Container[str],
) -> str:
    """Return what to write if keywords of a call that its function does not take are options, ours or of
    another queue; "" if none is.
    """
    given: list[str] = []
    texts: list[str] = []
    arguments = [_argument(value) for value in args]
    for word, value in kwargs.items():
        if word in takes or (word not in options and word not in words()["Task.using"]):
            arguments.append(f"{word}={_argument(value)}")
            continue
        ours = f"{word}={_shown(value)}" if word in options else _ours("Task.using", word, value)
        if word == "run_after":
            ours = _after(value)  # a number is refused there
        option, _, remark = ours.partition("; ")
        if re.match(r"\w+=", option):
            given.append(option)
            texts += [f"{option}: {remark}."] if remark else []
        else:
            texts.append(f"In place of {word}=, write {ours}.")
    if given:
        call = ", ".join([f"{name}.using({', '.join(given)})", *arguments])
        texts.insert(0, f"Options go before the arguments: enqueue({call}).")
    return " ".join(texts)


def _argument(value: Any) -> str:
    # Errors are logged, and other values may be secret, or long.
    return repr(value) if value is None or isinstance(value, (bool, int, float)) else "..."


def check_import(module: str, name: str) -> None:
    """Raise ImportError for a name that people expect in a public module, if another one takes its place.
    Of an AttributeError, an import would not show the words.
    """
    if module == "django_pgqueue" and name.endswith("Backend"):  # a wrong BACKEND in TASKS
        raise ImportError(
            f"{module} has no {name!r}. The task backend is "
            f'"{module}.backend.PgQueueBackend": write that as BACKEND in TASKS.'
        )
    if ours := words()[module].get(name):
        raise ImportError(f"{module} has no {name!r}. Use {ours.format(word=name)}.")


class Habits:
    """Says for an attribute that another queue has what to write."""

    __slots__ = ()

    _kind = "a job"

    if not TYPE_CHECKING:  # type checkers must refuse these

        def __getattr__(self, name: str) -> Any:
            """Refuse an attribute that does not exist. If another queue has it, name ours."""
            ours = words()[self._kind].get(name)
            if ours is None or hasattr(type(self), name):
                # Raises Python's own error; or that of a property, which must not look like a missing name.
                return object.__getattribute__(self, name)
            who, path = self._kind.capitalize(), ""
            if self._kind == "a task":
                path = self.module_path
                who = f"The task {path}"
            text = f"{who} has no {name!r}. Write {ours.format(name=path.rpartition('.')[2])}."
            raise AttributeError(text, name=name, obj=self)


hints(RetryLater)
hints(Snooze)
