"""Adds an op from outside the library: heat flowing around a ring.

Each point of a ring warms or cools towards its two neighbours.  The op says what that is once for
each use: its type, its values, its derivative, its transpose, its batch, and one element of it for
the compiler.  Then `grad`, `vmap` and `jit` work on programs that use it, and it is fused with what
stands around it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import stax
import stax.numpy as snp
from stax.errors import ShapeError
from stax.extend import ArrayType, Batch, Op, bind


@dataclass(frozen=True, eq=False)
class Flow(Op):
    """`rate` times the sum of the differences to both neighbours, along the last axis."""

    rate: float
    name = "flow"

    def abstract_eval(self, *types: ArrayType) -> ArrayType:
        (x,) = types
        if not x.ndim:
            raise ShapeError(f"flow: a ring has an axis, {x} has none.", advice="Pass a vector.")
        return x

    def evaluate(self, *arrays: np.ndarray) -> np.ndarray:
        (x,) = arrays
        change = np.roll(x, 1, axis=-1) + np.roll(x, -1, axis=-1) - 2 * x
        return (self.rate * change).astype(x.dtype)

    def jvp(self, out: Any, primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
        return None if tangents[0] is None else flow(tangents[0], self.rate)  # it is linear

    def transpose(self, ct: Any, *inputs: Any) -> Sequence[Any]:
        return (flow(ct, self.rate),)  # each neighbour is the other's neighbour

    def batch(self, batch: Batch, flags: Sequence[bool], *inputs: Any) -> Any:
        return flow(inputs[0], self.rate)  # the new axis is in front, the ring stays last

    def lower(self, kernel: Any, index: Any, *operands: Any) -> Any:
        (x,) = operands
        *before, i = index
        n, dtype = x.type.shape[-1], x.type.dtype
        left, right = (x((*before, kernel.modulo(kernel.plus(i, d), n))) for d in (n - 1, 1))
        here = kernel.apply("mul", kernel.const(2, dtype), x(index))
        change = kernel.apply("sub", kernel.apply("add", left, right), here)
        return kernel.apply("mul", kernel.const(self.rate, dtype), change)


def flow(x: Any, rate: float) -> Any:
    return bind(Flow(rate), x)


def simulate(start: Any) -> Any:
    """Return the temperatures after ten steps."""
    for _ in range(10):
        start = start + flow(start, 0.25)
    return start


def main() -> None:
    start = snp.zeros(8).at[4].set(1.0)
    print("one hot point, after ten steps:", simulate(start))
    jitted = stax.jit(simulate)
    print("compiled, the same:", bool(snp.allclose(jitted(start), simulate(start))))
    print("d end[4] / d start:", stax.jit(stax.grad(lambda x: simulate(x)[4]))(start))
    print("three rings at once:", stax.vmap(jitted)(snp.stack([start] * 3)).shape)
    print(stax.jit(lambda x: snp.tanh(x + flow(x, 0.25))).lower(start).as_text("kernels"))


if __name__ == "__main__":
    main()
