"""Checks that need to pass only once for an object that never changes."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")
Context = TypeVar("Context")


def passes_once(check: Callable[[T, Context], None]) -> Callable[[T, Context], None]:
    """Skip ``check(subject, context)`` where the same subject passed it in the same context before.

    Engines send the same parameter sets and id maps step after step, so all but the first step pay one dictionary
    look-up each. A refusal is never remembered. The memory holds no subject alive, and remembers its latest context
    only: one vocabulary size is all that a subject meets in practice.
    """
    passed: WeakKeyDictionary[T, Context] = WeakKeyDictionary()

    @wraps(check)
    def remembered(subject: T, context: Context) -> None:
        if subject in passed and passed[subject] == context:
            return
        check(subject, context)
        passed[subject] = context

    return remembered
