"""scipy.cluster beside JAX's."""

from typing import Any

import jax.scipy.cluster.vq as jax_vq
import numpy as np
import pytest

import stax.scipy.cluster.vq as stax_vq
from stax.errors import ArgumentValueError
from tests.beside_jax import Case, compare, draw, named

ROWS, CODES = draw(6, 3), draw(4, 3, seed=1)


def run(m: Any, rows: Any, codes: Any) -> Any:
    return m.vq(rows, codes)


CASES = {
    "rows": Case(run, (ROWS, CODES), slopes=True),
    "vectors": Case(run, (ROWS[:, 0], CODES[:, 0])),
    "int": Case(run, (draw(6, 3, dtype="int32"), CODES)),
    "complex": Case(run, (draw(6, 3, dtype="complex64"), CODES)),
    "equal": Case(run, (ROWS, np.zeros((3, 3), "float32"))),
}


SLOW = "complex"


@pytest.mark.parametrize("case", named(CASES, SLOW))
def test_like_jax(case: Case) -> None:
    compare(stax_vq, jax_vq, case)


def test_refused() -> None:
    for rows, codes in ((ROWS, CODES[:, :2]), (ROWS, CODES[0]), (ROWS[None], CODES[None])):
        with pytest.raises(ArgumentValueError, match="do not go together"):
            stax_vq.vq(rows, codes)
