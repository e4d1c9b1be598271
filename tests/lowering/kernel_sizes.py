"""Do kernels see the memory that their values have?"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from stax.lowering import loop_ir as ir
from stax.lowering.lane_step import LaneStep
from stax.lowering.program import KernelStep, Program
from stax.lowering.while_step import EndingStep
from stax.types import ArrayType


def assert_sizes_agree(program: Program) -> None:
    """Check that each kernel sees all of a value and no more, and runs its whole loop."""
    for step in (s for part in program.parts for s in part.steps):
        if isinstance(step, KernelStep):
            assert last_extent(step.built.kernel) == step.built.extent
            types = [node.type for node in step.built.values]
            assert_fit(step.built.kernel, types)
        elif isinstance(step, LaneStep | EndingStep):
            if isinstance(step, LaneStep):
                assert ir.static(last_extent(step.built.kernel)) == step.built.tasks
            given = [node.type for node in step.sources]
            made = [*step.node.type.items, ArrayType(np.dtype(bool), ())]
            types = [given[role] if role >= 0 else made[~role] for role in step.built.roles]
            assert_fit(step.built.kernel, types)


def last_extent(kernel: ir.Kernel) -> ir.Expr:
    loop = kernel.body[-1]
    assert isinstance(loop, ir.For)
    return loop.extent


def assert_fit(kernel: ir.Kernel, types: Sequence[ArrayType]) -> None:
    for buffer, type_ in zip(kernel.params, types, strict=True):
        sizes = [ir.static(n) for n in buffer.shape]
        if all(isinstance(n, int) for n in (*sizes, *type_.shape)):
            assert math.prod(n or 0 for n in sizes) == math.prod(map(int, type_.shape)), buffer
