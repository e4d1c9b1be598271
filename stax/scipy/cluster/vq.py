"""`jax.scipy.cluster.vq`: the code that is nearest to each observation."""

from __future__ import annotations

from typing import Any

import stax.numpy as snp
from stax.errors import ArgumentValueError
from stax.numpy.arguments import inexact, promoted
from stax.operators.elementwise import convert

__all__ = ["vq"]


def vq(obs: Any, code_book: Any, check_finite: bool = True) -> tuple[Any, Any]:
    """Return for each row of `obs` the number of the nearest row of `code_book`, and how far it is.

    Of several the first is taken; a vector is a column.  `check_finite` is accepted and changes
    nothing.  Raises ArgumentValueError for more than two axes and rows that differ in length.
    """
    rows, codes = (inexact("vq", x) for x in promoted("vq", (obs, code_book)))
    if rows.ndim != codes.ndim or rows.ndim not in (1, 2) or rows.shape[1:] != codes.shape[1:]:
        raise ArgumentValueError(
            f"vq: observations {rows.type} and codes {codes.type} do not go together.",
            advice="Both are vectors, or matrices with as many columns.",
        )
    if rows.ndim == 1:
        rows, codes = rows[:, None], codes[:, None]
    rows, codes = (convert(x, x.dtype) for x in (rows, codes))
    distances = snp.linalg.norm(rows[:, None] - codes[None], axis=-1)
    code = snp.argmin(distances, -1)
    return code, snp.take_along_axis(distances, code[:, None], 1)[:, 0]
