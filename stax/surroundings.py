"""What an error shows of the user's call: the arrays that it was given, and what was being done."""

from __future__ import annotations

from typing import Any

import numpy as np

from stax import errors
from stax.source import user_arguments, user_source
from stax.trace import Proxy, described, doing, is_array, links

_SHOWN = 6  # rows of an error


def surroundings() -> tuple[list[errors.Value], list[str]]:
    """Return the arrays that the user's line handed to the library, and what was being done.

    Other values are shown where there is no array among the arguments.
    """
    given = [item for name, value in user_arguments() for item in _flat(name, value)]
    rows = [_row(name, x) for name, x in given if is_array(x) or isinstance(x, np.ndarray)]
    others = [_row(name, x) for name, x in given if not (x is None or x is False or callable(x))]
    return rows[:_SHOWN] or others[:2], doing()


def _flat(label: str, value: Any) -> list[tuple[str, Any]]:
    """Return an argument, or the first items of a sequence of them, with names."""
    if label == "self":
        return [("x", value)] if is_array(value) else []
    if isinstance(value, list | tuple) and any(is_array(x) for x in value):
        return [(f"{label}[{i}]", x) for i, x in enumerate(value[:_SHOWN])]
    if isinstance(value, tuple):  # most often the arguments of a transformed function
        return [pair for i, x in enumerate(value[:_SHOWN]) for pair in _flat(f"{label}[{i}]", x)]
    return [(label, value)]


def _row(label: str, value: Any) -> errors.Value:
    if type(value) is Proxy:
        return label, repr(value.type), described(value.node, user_source())
    if type(value) is links.array_class:
        return label, repr(value.type), ""
    if isinstance(value, np.ndarray):
        return label, f"{value.dtype}{list(value.shape)}", "a NumPy array"
    text = " ".join(repr(value).split())
    return label, type(value).__name__, text if len(text) <= 40 else text[:37] + "..."


errors.links.surroundings = surroundings
