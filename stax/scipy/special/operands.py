"""Arguments of functions whose results are never weak, as those of the same ones in JAX are not."""

from __future__ import annotations

from typing import Any

from stax.numpy.arguments import inexact_operands
from stax.operators.elementwise import convert


def strong(name: str, *args: Any) -> Any:
    """Return arguments in one floating type and shape, without weak types; one alone as it is."""
    found = [convert(x, x.dtype) for x in inexact_operands(name, *args)]
    return found if len(found) > 1 else found[0]
