"""Generated LLVM code against the printed kernel run as Python."""

from __future__ import annotations

from typing import Any

import pytest

from stax.runtime.engine import Target
from stax.types import bfloat16, float32, float64
from tests.lowering import kernels
from tests.lowering.kernel_runs import check, machines

SIZES = (1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 100)
DTYPES = (float32, float64, bfloat16)
EXACT = (
    kernels.chain,
    kernels.transposed,
    kernels.transposed_store,
    kernels.reversal,
    kernels.padded,
    kernels.gathered,
    kernels.in_place,
    kernels.aliased,
    kernels.argmax_like,
    kernels.column_sum,
)
REORDERED = (kernels.softmax, kernels.masked_sum, kernels.symbolic, kernels.reductions)
# A bfloat16 accumulator loses what is added to it; kernels of the compiler accumulate in float32.
TOLERANCE = {float32: 3e-5, float64: 1e-12, bfloat16: 0.3}


@pytest.mark.parametrize("machine", machines())
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("build", EXACT, ids=lambda f: f.__name__)
def test_exact(build: Any, dtype: Any, machine: Target) -> None:
    for n in SIZES:
        check(build(n, dtype), machine)


@pytest.mark.parametrize("machine", machines())
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("build", REORDERED, ids=lambda f: f.__name__)
def test_reordered(build: Any, dtype: Any, machine: Target) -> None:
    for n in SIZES:
        check(build(n, dtype), machine, TOLERANCE[dtype])


@pytest.mark.parametrize("machine", machines())
def test_integers_from_positions(machine: Target) -> None:
    for n in SIZES:
        check(kernels.iota(n), machine)
