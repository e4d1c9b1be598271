"""`saved_residuals`: what reverse mode of a function saves, what it computes again, and why."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from stax.api import residuals
from stax.api.residuals import SavedResiduals


def saved_residuals(fun: Callable[..., Any]) -> Callable[..., SavedResiduals]:
    """Return a function of the arguments of `fun` that prints what its reverse mode keeps.

    One line for each value: saved or computed again, its type and bytes, the op that made it, why,
    and the user's line.  A loop is told by the values of one step, a checkpoint by its policy.
    Arguments may be ShapeDtypeStructs; nothing is computed.  What is printed is also returned, as
    an object whose `str()` it is.
    """

    @functools.wraps(fun)
    def explain(*args: Any, **kwargs: Any) -> SavedResiduals:
        found = residuals.saved_residuals(fun, args, kwargs)
        print(found)
        return found

    return explain
