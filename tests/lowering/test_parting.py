"""The parts of the sort in place: networks, parts around a pivot in both forms, heaps."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from stax.lowering.parting import sorting_functions
from stax.runtime.engine import compile_module, target

CALLED = """
define void @go(ptr %a, i64 %n) {attributes} {{
  call void @{name}(ptr %a, i64 %n)
  ret void
}}
"""


def sorter(name: str, bits: int, attributes: str) -> Callable[[np.ndarray], None]:
    texts = [text for _, text in sorting_functions(bits, attributes)]
    texts.append(CALLED.format(name=f"{name}{bits}", attributes=attributes))
    module = compile_module("\n".join(texts), ["go"]).keep_forever()
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(module.address("go"))
    return lambda x: function(x.ctypes.data, x.size)


def rows(bits: int, lengths: Any) -> Iterator[np.ndarray]:
    """Rows with few values, in order, against it, rising and falling, and of all values."""
    rng, dtype = np.random.default_rng(0), np.dtype(f"int{bits}")
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    for n in lengths:
        counted = np.arange(n, dtype=dtype)
        yield rng.integers(low, high, n, dtype=dtype, endpoint=True)
        yield rng.choice(np.array([low, 0, high], dtype), n)
        yield counted
        yield counted[::-1]
        yield np.minimum(counted, counted[::-1])
        yield np.full(n, high, dtype)


def check_sorts(function: Callable[[np.ndarray], None], given: Iterator[np.ndarray]) -> None:
    for row in given:
        held = np.concatenate([[-7], row, [7]]).astype(row.dtype)
        function(held[1:-1])
        assert held[0] == -7 and held[-1] == 7  # nothing beside it is touched
        np.testing.assert_array_equal(held[1:-1], np.sort(row))


@pytest.mark.parametrize("width", [256, 512])
@pytest.mark.parametrize("bits", [32, 64])
def test_rows_of_every_kind(bits: int, width: int) -> None:
    wide = f'"prefer-vector-width"="{8 * target().vector_bytes}"'
    attributes = target().attributes.replace(wide, f'"prefer-vector-width"="{width}"')
    lengths = (*range(270), 511, 512, 513, 1000, 30_000)
    check_sorts(sorter("quick", bits, attributes), rows(bits, lengths))


def test_heap() -> None:
    check_sorts(sorter("heap", 32, target().attributes), rows(32, (2, 3, 10, 500)))
