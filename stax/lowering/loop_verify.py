"""Check that a kernel is well formed, after a pass and before a code generator reads it.

The rules are those in the docstrings of `loop_ir`: names are bound once and used in scope, dtypes
and ranks agree, loop kinds nest as code generators expect.  A broken rule is a bug of the pass that
built the kernel, so the error shows the statement and, if it can be printed, the kernel.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from stax.errors import InternalError
from stax.lowering.loop_ir import (
    BOOL,
    COMPARISONS,
    COUNTING,
    INDEX,
    INDEXING,
    LOGIC,
    MATH,
    RETYPING,
    SCALAR_FUNCTIONS,
    SHIFTS,
    UPDATE_OPS,
    Alloc,
    Apply,
    Buffer,
    Const,
    Expr,
    For,
    Init,
    Kernel,
    Let,
    Load,
    Set,
    Stmt,
    Store,
    Update,
    Var,
    arity,
    static,
    walk,
)
from stax.lowering.loop_printer import type_name
from stax.types import SHORT_NAMES, bfloat16

# Scratch is on the stack, of which some threads have half a megabyte.
SCRATCH_LIMIT = 256 * 1024
_KINDS = ("parallel", "serial", "vector", "unroll")
_FLOATS_ONLY = frozenset((*MATH, "sqrt", "rsqrt"))
_BITS_ONLY = frozenset(LOGIC + SHIFTS + COUNTING)


def verify_kernel(kernel: Kernel) -> Kernel:
    """Raise InternalError if `kernel` breaks a rule; give it back otherwise."""
    _Verifier(kernel).run()
    return kernel


class _Verifier:
    """Holds the scope while statements are read in order: what each name in it is."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.buffers: dict[str, Buffer] = {}
        self.variables: dict[str, Var] = {}
        self.mutable: dict[str, int] = {}
        # A buffer's name is never used again, a variable's not within its scope.
        self.names: set[str] = set()
        self.stored: set[str] = set()
        self.scratch = 0
        self.loops: list[For] = []
        self.stmt: Stmt | None = None

    def fail(self, rule: str) -> NoReturn:
        where = "" if self.stmt is None else f"{describe(self.stmt)}: "
        raise InternalError(
            f"kernel {self.kernel.name}: {where}{rule}",
            doing=[f"verifying kernel {self.kernel.name}"],
            advice="The pass that built this kernel broke a rule of the loop IR.",
        )

    def run(self) -> None:
        for buffer in self.kernel.params:
            self.bind_buffer(buffer)
        for extent in self.kernel.extents:
            self.define(extent, INDEX)
        self.shape()
        for buffer in self.kernel.params:
            self.expressions([e for e in buffer.shape if not isinstance(e, int)])
        self.statements(self.kernel.body)
        self.stmt = None
        for name in self.kernel.outputs:
            if name not in {b.name for b in self.kernel.params}:
                self.fail(f"output {name} is not a param.")
            if name not in self.stored:
                self.fail(f"output {name} is never stored to.")

    def shape(self) -> None:
        """Check that the body is lets and allocs, then one parallel loop."""
        *before, last = self.kernel.body or (None,)
        if not isinstance(last, For) or last.kind != "parallel":
            self.fail("the body must end in a parallel loop.")
        for stmt in before:
            if not isinstance(stmt, (Let, Alloc)):
                self.fail(f"only Let and Alloc may come before the parallel loop, not {stmt!r}.")

    # Names

    def bind(self, name: str) -> None:
        if not name.isidentifier():
            self.fail(f"{name!r} is not an identifier.")
        if name in self.names or name in self.variables:
            self.fail(f"the name {name} is bound twice.")

    def bind_buffer(self, buffer: Buffer) -> None:
        self.bind(buffer.name)
        self.names.add(buffer.name)
        self.buffers[buffer.name] = buffer

    def define(self, var: Var, dtype: Any) -> None:
        self.bind(var.name)
        if var.dtype != dtype:
            self.fail(f"{_typed(var)} is given a value of type {SHORT_NAMES[dtype]}.")
        self.variables[var.name] = var

    @contextmanager
    def scope(self) -> Iterator[None]:
        before = dict(self.variables), dict(self.mutable), dict(self.buffers)
        yield
        self.variables, self.mutable, self.buffers = before

    # Statements

    def statements(self, body: Sequence[Stmt]) -> None:
        for stmt in body:
            self.stmt = stmt
            match stmt:
                case Let(var, value):
                    self.expressions([value])
                    self.define(var, value.dtype)
                case Init(var, value):
                    self.expressions([value])
                    self.define(var, value.dtype)
                    self.mutable[var.name] = self.vector_depth()
                case Set(var, value):
                    self.expressions([value])
                    self.assigned(var, value)
                    if self.mutable[var.name] < self.vector_depth():
                        self.fail("a vector loop may only Update locals begun outside of it.")
                case Update(op, var, value):
                    self.update(op, var, value)
                case Store():
                    self.store(stmt)
                case Alloc(buffer):
                    self.allocate(buffer)
                case For():
                    self.loop(stmt)

    def vector_depth(self) -> int:
        return sum([loop.kind == "vector" for loop in self.loops])

    def assigned(self, var: Var, value: Expr) -> None:
        if var.name not in self.mutable:
            self.fail(f"{var.name} is not a mutable local in scope; begin it with Init.")
        if self.variables[var.name] != var or value.dtype != var.dtype:
            known = _typed(self.variables[var.name])
            self.fail(f"{known} is assigned {SHORT_NAMES[value.dtype]} as {_typed(var)}.")

    def update(self, op: str, var: Var, value: Expr) -> None:
        self.expressions([value])
        self.assigned(var, value)
        if op not in UPDATE_OPS:
            self.fail(f"{op} is not one of {', '.join(UPDATE_OPS)}.")
        is_float = _is_float(var.dtype)
        if op in ("and", "or", "xor") and is_float:
            self.fail(f"{op} of {SHORT_NAMES[var.dtype]} values.")

    def store(self, stmt: Store) -> None:
        self.expressions([*stmt.index, stmt.value, *([stmt.mask] if stmt.mask else [])])
        self.access(stmt.buffer, stmt.index, stmt.mask)
        if stmt.value.dtype != stmt.buffer.dtype:
            self.fail(f"a {SHORT_NAMES[stmt.value.dtype]} value for {type_name(stmt.buffer)}.")
        is_param = any([b.name == stmt.buffer.name for b in self.kernel.params])
        if is_param and stmt.buffer.name not in self.kernel.outputs:
            self.fail(f"param {stmt.buffer.name} is not among the outputs.")
        self.stored.add(stmt.buffer.name)

    def allocate(self, buffer: Buffer) -> None:
        self.bind_buffer(buffer)
        sizes = [static(extent) for extent in buffer.shape]
        known = [size for size in sizes if size is not None]
        if len(known) < len(sizes):
            self.fail("scratch must have a static shape.")
        self.scratch += math.prod(known) * buffer.dtype.itemsize
        if self.scratch > SCRATCH_LIMIT:
            self.fail(f"scratch takes {self.scratch} bytes, more than {SCRATCH_LIMIT}.")

    def loop(self, stmt: For) -> None:
        self.expressions([stmt.extent])
        if stmt.kind not in _KINDS:
            self.fail(f"{stmt.kind} is not one of {', '.join(_KINDS)}.")
        if stmt.extent.dtype != INDEX:
            self.fail(f"the extent is {SHORT_NAMES[stmt.extent.dtype]}, not an index (i64).")
        if stmt.kind == "parallel" and self.loops:
            self.fail("a parallel loop inside another loop.")
        if stmt.kind == "vector" and self.vector_depth():
            self.fail("a vector loop inside a vector loop.")
        if stmt.kind == "unroll" and static(stmt.extent) is None:
            self.fail("an unrolled loop needs a static extent.")
        with self.scope():
            self.define(stmt.var, INDEX)
            self.loops.append(stmt)
            self.statements(stmt.body)
            self.stmt = stmt
            if stmt.going is not None:
                self.going(stmt, stmt.going)
            self.loops.pop()
        self.stmt = stmt

    def going(self, stmt: For, condition: Expr) -> None:
        self.expressions([condition])
        if stmt.kind != "serial" or self.vector_depth():
            self.fail("only a serial loop in no vector loop has a condition.")
        if condition.dtype != BOOL:
            self.fail(f"the condition is {SHORT_NAMES[condition.dtype]}, not bool.")

    # Expressions

    def expressions(self, roots: Sequence[Expr]) -> None:
        for node in walk(*roots):
            match node:
                case Var(name):
                    self.variable(node, name)
                case Load(buffer, index, mask):
                    self.access(buffer, index, mask)
                case Apply():
                    self.applied(node)
                case Const():
                    pass
                case _:
                    self.fail(f"{type(node).__name__} where an expression is needed.")

    def variable(self, var: Var, name: str) -> None:
        known = self.variables.get(name)
        if known is None:
            self.fail(f"{name} is used outside of its scope.")
        if known != var:
            self.fail(f"{_typed(known)} is used as {_typed(var)}.")
        if self.mutable.get(name, self.vector_depth()) < self.vector_depth():
            loop = next(loop for loop in self.loops if loop.kind == "vector")
            if any([isinstance(n, Update) and n.var == var for n in walk(*loop.body)]):
                self.fail(f"{name} is looked at while a vector loop is updating it.")

    def access(self, buffer: Buffer, index: tuple[Expr, ...], mask: Expr | None) -> None:
        known = self.buffers.get(buffer.name)
        if known is None:
            self.fail(f"buffer {buffer.name} is neither a param nor scratch in scope.")
        if known != buffer:
            self.fail(f"buffer {buffer.name}: {type_name(known)} is used as {type_name(buffer)}.")
        if len(index) != len(buffer.shape):
            self.fail(f"{buffer.name}: {len(index)} indices for {type_name(buffer)}.")
        for position in index:
            if position.dtype != INDEX:
                self.fail(f"{buffer.name}: an index of type {SHORT_NAMES[position.dtype]}.")
        if mask is not None and mask.dtype != BOOL:
            self.fail(f"{buffer.name}: a mask of type {SHORT_NAMES[mask.dtype]}.")

    def applied(self, node: Apply) -> None:
        name, types = node.name, [x.dtype for x in node.args]
        signature = f"{name}({', '.join([SHORT_NAMES[t] for t in types])})"
        if name not in SCALAR_FUNCTIONS:
            self.fail(f"{name} is not a scalar function.")
        if len(types) != arity(name):
            self.fail(f"{signature}: {name} takes {arity(name)} arguments.")
        if name == "bitcast" and types[0].itemsize != node.dtype.itemsize:
            self.fail(f"{signature}: {SHORT_NAMES[node.dtype]} has another width.")
        if name in RETYPING:
            return
        operands = types[1:] if name == "select" else types
        if name == "select" and types[0] != BOOL:
            self.fail(f"{signature}: the condition must be bool.")
        if any([t != operands[0] for t in operands]):
            self.fail(f"{signature}: operands must have one dtype.")
        result = BOOL if name in COMPARISONS or name == "is_finite" else operands[0]
        if node.dtype != result:
            self.fail(f"{signature} gives {SHORT_NAMES[result]}, not {SHORT_NAMES[node.dtype]}.")
        is_float = _is_float(operands[0])
        if name in _FLOATS_ONLY and not is_float:
            self.fail(f"{signature}: {name} is a function of floats.")
        if name in _BITS_ONLY and is_float:
            self.fail(f"{signature}: {name} is a function of integers.")
        if name in INDEXING and operands[0] != INDEX:
            self.fail(f"{signature}: {name} is for index arithmetic.")


def describe(stmt: Stmt) -> str:
    """Name a statement by what it does, without its expressions."""
    match stmt:
        case For(var, _, kind):
            return f"for {var.name} in {kind}"
        case Store(buffer) | Alloc(buffer):
            return f"{type(stmt).__name__.lower()} {buffer.name}"
        case Update(op, var):
            return f"update {var.name} by {op}"
        case Let(var) | Init(var) | Set(var):
            return f"{type(stmt).__name__.lower()} {var.name}"


def _typed(var: Var) -> str:
    return f"{var.name}: {SHORT_NAMES[var.dtype]}"


def _is_float(dtype: Any) -> bool:
    return dtype.kind == "f" or dtype == bfloat16
