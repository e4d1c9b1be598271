"""Short rows with vectors across them: what many rows read is staged."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stax
import stax.numpy as snp
from stax.lowering.schedule import Layout, schedule
from tests.lowering.examples import fusion_of, normal

PROGRAMS: dict[str, Callable[..., Any]] = {
    "distances": lambda x, y: snp.sqrt(((x[:, None] - y[None]) ** 2).sum(-1)),
    "of one set": lambda x, y: snp.exp(-((x[:, None] - x[None]) ** 2).sum(-1)),
    "two": lambda x, y: (
        snp.abs(x[:, None] - y[None]).max(-1),
        (x[:, None] * y[None]).min(-1),
    ),
    "backward": lambda x, y: ((x[:, None] - y[None, ::-1]) ** 2).sum(-1),
    "batch": lambda x, y: (
        (snp.stack([x, x + 1])[:, :, None] - snp.stack([y, 2 * y])[:, None]) ** 2
    ).sum(-1),
    "any": lambda x, y: (x[:, None] > y[None] + 2).any(-1),
}
SIZES = [(40, 40, 4), (100, 257, 16), (70, 33, 61)]


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_values(name: str, sizes: tuple[int, int, int]) -> None:
    rows, columns, length = sizes
    x, y = normal(rows, length), normal(columns, length, seed=1)
    found = stax.tree.leaves(stax.jit(PROGRAMS[name])(x, y))
    with stax.disable_jit():
        want = stax.tree.leaves(PROGRAMS[name](snp.asarray(x), snp.asarray(y)))
    for a, b in zip(found, want, strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=2e-6, atol=2e-6)


def test_what_is_staged() -> None:
    x, y = normal(100, 16), normal(200, 16, seed=1)
    fusion = fusion_of(PROGRAMS["distances"], x, y)
    (region,) = fusion.regions
    plan = schedule(fusion, region)
    assert plan.layout is Layout.SHORT_ROWS
    ((node, axes),) = plan.staged
    assert node.type.shape == (200, 16)
    assert axes == (1, 2)
    assert "staged in scratch" in str(stax.inspect.explain(PROGRAMS["distances"])(x, y))
