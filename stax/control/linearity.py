"""Whether a graph is linear in some of its inputs: linear, not merely affine.

`transpose` believes it is told of a linear function.  What has no transpose rule fails there, while
x + 1 has the transpose of x.  A graph that the user promised to be linear is checked here: where a
value depends on those inputs, each op has to be linear in what depends on them, and what it adds to
that, joins with it or chooses in place of it has to be a zero that the graph says is one.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from stax.control.call import Call
from stax.control.held import HoldsGraphs, sections
from stax.control.scan import Scan
from stax.control.switch import Switch
from stax.control.while_loop import While
from stax.graph import ArrayConstant, Constant, Graph, Node, Project, live, multiple
from stax.op import Op, has_rule
from stax.operators.bits import Late
from stax.operators.broadcast import LinearOp
from stax.operators.contract import DotGeneral
from stax.operators.convolution import Convolution
from stax.operators.dynamic import DynamicSlice, DynamicUpdateSlice
from stax.operators.elementwise import Convert, Elementwise, Select
from stax.operators.fft import Fft
from stax.operators.gradient import StopGradient
from stax.operators.index import Gather, Scatter
from stax.operators.linalg import TriangularSolve
from stax.operators.matrices import Carried
from stax.operators.qr import TridiagonalSolve
from stax.types import is_bool, is_inexact


class Kind(enum.IntEnum):
    """What a value is: zero, something else that is fixed, or linear in the inputs."""

    ZERO = 0
    FIXED = 1
    LINEAR = 2


class Offence(NamedTuple):
    """A node that makes a graph not linear, and in what way."""

    node: Node
    reason: str

    @property
    def row(self) -> tuple[str, str, str]:
        """The node as errors show it."""
        source = self.node.source
        return self.node.op.name, repr(self.node.type), source.shown() if source else ""


class _NotLinear(Exception):
    def __init__(self, node: Node, reason: str) -> None:
        self.offence = Offence(node, reason)


def offence(graph: Graph, flags: Sequence[bool]) -> Offence | None:
    """Return the first node for which `graph` is not linear in its flagged inputs, if any."""
    given = [Kind.LINEAR if f else Kind.FIXED for f in flags]
    try:
        found = _kinds(graph, given)
    except _NotLinear as error:
        return error.offence
    for node, kind in zip(graph.outputs, found, strict=True):
        if kind is Kind.FIXED:
            return Offence(node, "does not depend on them and is not zero")
    return None


def is_zero(node: Node) -> bool:
    """Say whether a node is a constant whose elements are all zero."""
    return isinstance(node.op, Constant | ArrayConstant) and not np.any(node.op.evaluate())


def _kinds(graph: Graph, given: Sequence[Kind]) -> list[Kind]:
    """Return what the outputs are, given what the inputs are; raises if one is not linear."""
    found: dict[Node, Any] = dict(zip(graph.inputs, given, strict=True))
    for node in live(graph.nodes, graph.outputs):
        before = [found[x] for x in node.inputs]
        if isinstance(node.op, Project):
            found[node] = before[0][node.op.position]
        elif isinstance(node.op, HoldsGraphs) and node.op.linear_after is None:
            found[node] = _held(node, node.op, before)
        elif not multiple(node):
            found[node] = _kind(node, before)
        elif node.type.items:  # what has no results is there for its effect alone
            found[node] = [_kind(node, before)] * len(node.type.items)
        else:
            found[node] = []
    return [found[x] for x in graph.outputs]


def _kind(node: Node, before: Sequence[Kind]) -> Kind:
    match node.op:
        case Constant() | ArrayConstant():
            return Kind.ZERO if is_zero(node) else Kind.FIXED
        case Late() | Carried():
            return before[0]
        case StopGradient() if before[0] is not Kind.LINEAR:
            return before[0]
        case Convert() if _rounds(node) and Kind.LINEAR in before:
            raise _NotLinear(node, "is not linear")
        case Gather() if _fills(node.op) and Kind.LINEAR in before:
            raise _NotLinear(node, "joins what depends on them with what does not")
    places = _places(node.op, len(before))
    if places is None:
        return Kind.LINEAR if Kind.LINEAR in before else Kind.FIXED
    terms, factors = places
    linear = {i for i, kind in enumerate(before) if kind is Kind.LINEAR}
    if not linear:
        sums_zeros = bool(terms) and all(before[i] is Kind.ZERO for i in terms)
        vanishes = sums_zeros or any(before[i] is Kind.ZERO for i in factors)
        return Kind.ZERO if vanishes else Kind.FIXED
    if not linear <= {*terms, *factors} or (factors and len(linear) > 1):
        raise _NotLinear(node, "is not linear")
    if any(before[i] is Kind.FIXED for i in terms):
        raise _NotLinear(node, "joins what depends on them with what does not")
    return Kind.LINEAR


def _rounds(node: Node) -> bool:
    """Say whether a conversion makes numbers whole, or a truth value of them."""
    dtype = node.type.dtype
    return is_bool(dtype) or (not is_inexact(dtype) and is_inexact(node.inputs[0].type.dtype))


def _fills(op: Gather) -> bool:
    """Say whether places that are out of bounds read a number; NaN only marks them."""
    number = op.fill_value
    return bool(number) and not (isinstance(number, float) and math.isnan(number))


Places = Sequence[int]


def _places(op: Op, count: int) -> tuple[Places, Places] | None:
    """Return in which of its `count` operands together an op is linear, and in which of them while
    the others are held fixed; None for an op of the user's, whose transpose rule knows."""
    match op:
        case HoldsGraphs():
            return range(op.linear_after or 0, count), ()
        case LinearOp():
            return range(count), ()
        case Elementwise():
            multiplies = op.name in ("mul", "div")
            return ((), op.row.linear) if multiplies else (op.row.linear, ())
        case DotGeneral() | Convolution():
            return (), (0, 1)
        case Select():
            return (1, 2), ()
        case DynamicUpdateSlice():
            return (0, 1), ()
        case Scatter():
            return {"add": ((0, 2), ()), "set": ((0, 2), ()), "mul": ((), (0, 2))}.get(
                op.kind, ((), ())
            )
        case TriangularSolve() | TridiagonalSolve():
            return (count - 1,), ()
        case Convert() | Gather() | DynamicSlice() | Fft():
            return (0,), ()
        case StopGradient():
            return (), ()
    return None if has_rule(type(op), "transpose") else ((), ())


def _held(node: Node, op: HoldsGraphs, before: Sequence[Kind]) -> list[Kind]:
    """Return what the results of an op that applies graphs are."""
    match op:
        case Switch():
            if before[0] is Kind.LINEAR:
                raise _NotLinear(node, "is not linear")
            branches = [_kinds(graph, before[1:]) for graph in op.branches]
            return [_either(node, column) for column in zip(*branches, strict=True)]
        case Scan():
            consts, carry, xs = op.parts(before)
            carry, ys = _settled(node, op.body, consts, carry, xs)
            return [*carry, *ys]
        case While():
            of_cond, of_body, carry = sections(before, op.cond_consts, op.body_consts)
            carry, ys = _settled(node, op.body, of_body, carry, [])
            if Kind.LINEAR in _kinds(op.cond, [*of_cond, *carry]):
                raise _NotLinear(node, "is not linear")
            return [*carry, *([] if op.length is None else [Kind.FIXED]), *ys]
        case Call():
            return _kinds(op.graph, before)
    raise _NotLinear(node, "is not linear")


def _settled(
    node: Node, body: Graph, consts: list[Kind], carry: list[Kind], xs: list[Kind]
) -> tuple[list[Kind], list[Kind]]:
    """Return what a loop carries, in every step, and what its steps return besides."""
    while True:
        new, ys = sections(_kinds(body, [*consts, *carry, *xs]), len(carry))
        joined = [_either(node, pair) for pair in zip(carry, new, strict=True)]
        if joined == carry:
            return carry, ys
        carry = joined


def _either(node: Node, kinds: Sequence[Kind]) -> Kind:
    """Return what a value is that is one of several."""
    if Kind.FIXED in kinds and Kind.LINEAR in kinds:
        raise _NotLinear(node, "joins what depends on them with what does not")
    return max(kinds)
