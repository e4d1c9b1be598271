"""The loop IR: kernels as loops over scalars and buffers, the form that code generators read.

An expression is a scalar; arrays exist only as buffers that are loaded from and stored to, so a
fused chain of array operations is one nested expression inside one loop.  Every node is frozen;
a pass builds new nodes with `map_children`, which returns the same object when nothing changed.
A name in scope is never bound again, hence a `Var` may be a dictionary key; loops one after the
other may use the same variable.

Index arithmetic is int64 and goes through the constructors at the end, which fold as they build:

    >>> i = Var("i", INDEX)
    >>> add(mul(i, 4), add(1, 2)).args[1].value
    3
    >>> mul(i, 0).value, add(i, 0) is i, floordiv(mul(i, 8), 4).args[1].value
    (0, True, 2)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np

from stax.types import bool_, int64

INDEX = int64
BOOL = bool_

LoopKind = Literal["parallel", "serial", "vector", "unroll"]

# Scalar functions by what they accept and give.  A backend's spelling table has one row for each.
ARITHMETIC = ("add", "sub", "mul", "div", "rem", "neg", "abs", "sign", "maximum", "minimum", "fma")
ROUNDING = ("floor", "ceil", "trunc", "round", "sqrt", "rsqrt")
# Special functions, by the number of their arguments.
SPECIAL = {
    **dict.fromkeys(("erf_inv", "ndtri", "erfcx", "dawsn", "lgamma", "gamma", "digamma"), 1),
    **dict.fromkeys(("bessel_i0e", "bessel_i1e", "expi", "spence", "sinint", "cosint"), 1),
    **dict.fromkeys(("fresnel_s", "fresnel_c"), 1),
    **dict.fromkeys(("polygamma", "zeta", "beta", "binom", "poch", "owens_t"), 2),
    **dict.fromkeys(("igamma", "igammac", "igamma_grad_a", "random_gamma_grad"), 2),
    **dict.fromkeys(("expn", "bessel_j", "wofz_real", "wofz_imag"), 2),
    **dict.fromkeys(("loggamma_real", "loggamma_imag"), 2),
    **dict.fromkeys(("complex_digamma_real", "complex_digamma_imag"), 2),
    **dict.fromkeys(("betainc", "hyp1f1", "hyp1f1_grad_a", "hyp1f1_grad_b"), 3),
    **dict.fromkeys(("hyp2f1", "hyp2f1_grad_a", "hyp2f1_grad_c"), 4),
}
# Those of several arguments are loops, or C functions called for one element after the other.
SLOW = frozenset(name for name, count in SPECIAL.items() if count > 1)
MATH = (
    *("exp", "exp2", "expm1", "log", "log1p", "logistic", "erf", "erfc", "pow", "cbrt"),
    *("sin", "cos", "tan", "asin", "acos", "atan", "atan2"),
    *("sinh", "cosh", "tanh", "asinh", "acosh", "atanh"),
    *SPECIAL,
)
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
LOGIC = ("and", "or", "xor", "not")
SHIFTS = ("shift_left", "shift_right_logical", "shift_right_arithmetic")
COUNTING = ("population_count", "clz", "mulhi")
INDEXING = ("floordiv", "mod")
RETYPING = ("convert", "bitcast")  # the type of the result is part of the application
OTHER = ("is_finite", "select", *RETYPING)
SCALAR_FUNCTIONS = frozenset(
    ARITHMETIC + ROUNDING + MATH + COMPARISONS + LOGIC + SHIFTS + COUNTING + INDEXING + OTHER
)
BINARY = frozenset(
    (
        *("add", "sub", "mul", "div", "rem", "maximum", "minimum", "pow", "atan2"),
        *("and", "or", "xor", "mulhi", *INDEXING, *COMPARISONS, *SHIFTS),
    )
)
TERNARY = frozenset(("select", "fma"))

# What an Update may do, and the operations whose order the code generator may choose.
UPDATE_OPS = ("add", "mul", "maximum", "minimum", "and", "or", "xor")


def arity(name: str) -> int:
    """Give the number of arguments of a scalar function."""
    return SPECIAL.get(name) or (3 if name in TERNARY else 2 if name in BINARY else 1)


def identity_value(op: str, dtype: np.dtype) -> Any:
    """Give the number that leaves every other unchanged under an Update's operation."""
    if op == "add":
        # Adding 0.0 would turn -0.0 into 0.0.
        return 0 if dtype.kind in "iub" else -0.0
    if op == "mul":
        return 1
    if op in ("and", "or", "xor"):
        return op == "and" if dtype == BOOL else -(op == "and")
    is_largest = op == "minimum"
    if dtype == BOOL:
        return is_largest
    if dtype.kind in "iu":
        return np.iinfo(dtype).max if is_largest else np.iinfo(dtype).min
    return np.inf if is_largest else -np.inf


@dataclass(frozen=True, slots=True, eq=False)
class Const:
    """A literal. Equal constants have equal bits: 0.0 is not -0.0, True is not 1."""

    value: Any
    dtype: np.dtype

    def bits(self) -> bytes:
        return np.asarray(self.value, self.dtype).tobytes()

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Const) and self.dtype == other.dtype and self.bits() == other.bits()
        )

    def __hash__(self) -> int:
        return hash((self.dtype, self.bits()))


@dataclass(frozen=True, slots=True)
class Var:
    """A loop variable, an extent, a Let or a mutable local; told apart by name."""

    name: str
    dtype: np.dtype


@dataclass(frozen=True, slots=True)
class Buffer:
    """Memory of a row-major array; a bool takes one byte, 0 or 1."""

    name: str
    dtype: np.dtype
    shape: tuple[Expr | int, ...]


@dataclass(frozen=True, slots=True)
class Load:
    """One element of `buffer`; where `mask` is false memory is left alone and the value is 0."""

    buffer: Buffer
    index: tuple[Expr, ...]
    mask: Expr | None = None

    @property
    def dtype(self) -> np.dtype:
        return self.buffer.dtype


@dataclass(frozen=True, slots=True)
class Apply:
    """A scalar function of `SCALAR_FUNCTIONS`."""

    name: str
    args: tuple[Expr, ...]
    dtype: np.dtype


Expr = Const | Var | Load | Apply


@dataclass(frozen=True, slots=True)
class For:
    """Run `body` for var = 0 .. extent-1; `kind` says what the iterations may rely on.

    Iterations of "parallel" and "vector" loops are independent apart from Update; "serial" and
    "unroll" run in order, the latter with the body repeated.  A serial loop with a condition
    `going`, in no vector loop, also ends after an iteration at the end of which that is false.
    """

    var: Var
    extent: Expr
    kind: LoopKind
    body: tuple[Stmt, ...]
    going: Expr | None = None


@dataclass(frozen=True, slots=True)
class Let:
    """Name a value."""

    var: Var
    value: Expr


@dataclass(frozen=True, slots=True)
class Init:
    """Begin a mutable local."""

    var: Var
    value: Expr


@dataclass(frozen=True, slots=True)
class Set:
    """Assign to a mutable local."""

    var: Var
    value: Expr


@dataclass(frozen=True, slots=True)
class Update:
    """var = op(var, value); crossing a vector loop, a reduction whose order is the backend's."""

    op: str
    var: Var
    value: Expr


@dataclass(frozen=True, slots=True)
class Store:
    """Write one element of `buffer`, unless `mask` is false."""

    buffer: Buffer
    index: tuple[Expr, ...]
    value: Expr
    mask: Expr | None = None


@dataclass(frozen=True, slots=True)
class Alloc:
    """Scratch of static shape, private to one iteration of the parallel loop, not initialised."""

    buffer: Buffer


Stmt = For | Let | Init | Set | Update | Store | Alloc
Node = Const | Var | Load | Apply | For | Let | Init | Set | Update | Store | Alloc


@dataclass(frozen=True, slots=True)
class Kernel:
    """A function of buffers and extents whose body is lets and allocs, then one parallel loop.

    `aliases` names pairs of params that may be the same memory (an output written over an input):
    code generators must then not compute an element twice.  `streamed` are outputs that are not
    read soon: stores to them had better pass the caches by.
    """

    name: str
    params: tuple[Buffer, ...]
    extents: tuple[Var, ...]
    body: tuple[Stmt, ...]
    outputs: tuple[str, ...]
    aliases: tuple[tuple[str, str], ...] = ()
    streamed: tuple[str, ...] = ()


# Traversal


def _stored(node: Store) -> tuple[Any, ...]:
    return (*node.index, node.value, *(() if node.mask is None else (node.mask,)))


def _loop_parts(node: For) -> tuple[Any, ...]:
    return (node.extent, *node.body, *(() if node.going is None else (node.going,)))


def _value(node: Any) -> tuple[Any, ...]:
    return (node.value,)


# What is directly inside of a node, by its class: asked for every node of every kernel many times.
_CHILDREN: dict[type, Callable[[Any], tuple[Any, ...]]] = {
    Apply: lambda node: node.args,
    Load: lambda node: node.index if node.mask is None else (*node.index, node.mask),
    Store: _stored,
    For: _loop_parts,
    **dict.fromkeys((Let, Init, Set, Update), _value),
}


def children(node: Node) -> tuple[Node, ...]:
    """Give the expressions and statements directly inside `node`, in order of evaluation."""
    parts = _CHILDREN.get(type(node))
    return parts(node) if parts is not None else ()


N = TypeVar("N")


def map_children(node: Any, f: Callable[[Any], Any]) -> Any:
    """Apply `f` to each direct child; the same node comes back if no child changed."""
    match node:
        case Apply(name, args, dtype):
            new = _map_tuple(args, f)
            return node if new is args else Apply(name, new, dtype)
        case Load(buffer, index, mask):
            new, m = _map_tuple(index, f), _map_optional(mask, f)
            return node if new is index and m is mask else Load(buffer, new, m)
        case For(var, extent, kind, body, going):
            e, b, g = f(extent), _map_tuple(body, f), _map_optional(going, f)
            same = e is extent and b is body and g is going
            return node if same else For(var, e, kind, b, g)
        case Let(var, value) | Init(var, value) | Set(var, value):
            v = f(value)
            return node if v is value else type(node)(var, v)
        case Update(op, var, value):
            v = f(value)
            return node if v is value else Update(op, var, v)
        case Store(buffer, index, value, mask):
            new, v, m = _map_tuple(index, f), f(value), _map_optional(mask, f)
            same = new is index and v is value and m is mask
            return node if same else Store(buffer, new, v, m)
        case _:
            return node


def _map_tuple(items: tuple[Any, ...], f: Callable[[Any], Any]) -> tuple[Any, ...]:
    new = tuple([f(item) for item in items])
    return items if all(a is b for a, b in zip(new, items, strict=True)) else new


def _map_optional(item: Any, f: Callable[[Any], Any]) -> Any:
    return None if item is None else f(item)


def walk(*roots: Node) -> Iterator[Node]:
    """Give every node under `roots`, parents first; shared nodes come once."""
    stack = list(reversed(roots))
    seen: set[int] = set()
    while stack:
        node = stack.pop()
        if id(node) not in seen:
            seen.add(id(node))
            yield node
            parts = _CHILDREN.get(type(node))
            if parts is not None:
                stack += reversed(parts(node))


def substitute(root: N, replacements: Mapping[Var, Expr]) -> N:
    """Replace variables by expressions, each shared node once; binders are left as they are."""
    memo: dict[int, Any] = {}
    stack: list[Any] = [root]
    while stack:
        node = stack[-1]
        if id(node) in memo:
            stack.pop()
            continue
        waiting = [child for child in children(node) if id(child) not in memo]
        if waiting:
            stack.extend(waiting)
            continue
        stack.pop()
        is_replaced = isinstance(node, Var) and node in replacements
        memo[id(node)] = (
            replacements[node] if is_replaced else map_children(node, lambda c: memo[id(c)])
        )
    return memo[id(root)]


# Construction


def index(value: int | Expr) -> Expr:
    """Make an int64 constant of a Python integer; an expression passes."""
    return Const(int(value), INDEX) if isinstance(value, (int, np.integer)) else value


def static(value: int | Expr) -> int | None:
    """Give the integer that an index expression is known to be, or None."""
    if isinstance(value, Const):
        return int(value.value)
    return int(value) if isinstance(value, (int, np.integer)) else None


def apply(name: str, *args: Expr, dtype: np.dtype | None = None) -> Apply:
    """Apply a scalar function whose result type follows from its arguments."""
    if dtype is None:
        is_bool = name in COMPARISONS or name == "is_finite"
        dtype = BOOL if is_bool else args[1 if name == "select" else 0].dtype
    return Apply(name, args, dtype)


def convert(x: Expr, dtype: np.dtype) -> Expr:
    """Convert to `dtype`; nothing to do if that is what `x` is."""
    return x if x.dtype == dtype else Apply("convert", (x,), dtype)


def bitcast(x: Expr, dtype: np.dtype) -> Expr:
    """Read the bits of `x` as a number of another type of the same width."""
    return x if x.dtype == dtype else Apply("bitcast", (x,), dtype)


def add(x: int | Expr, y: int | Expr) -> Expr:
    """Add index expressions; a constant is kept rightmost."""
    x, y = index(x), index(y)
    a, b = static(x), static(y)
    if a is not None:
        return Const(a + b, INDEX) if b is not None else add(y, x) if a else y
    if b == 0:
        return x
    if b is not None:
        match x:
            case Apply("add", (inner, Const(c, _))):
                return add(inner, int(c) + b)
    match y:
        case Apply("add", (inner, Const(c, _))):
            return add(add(x, inner), int(c))
    return Apply("add", (x, y), INDEX)


def sub(x: int | Expr, y: int | Expr) -> Expr:
    """Subtract index expressions."""
    x, y = index(x), index(y)
    b = static(y)
    if b is not None:
        return add(x, -b)
    return Const(0, INDEX) if x is y else Apply("sub", (x, y), INDEX)


def mul(x: int | Expr, y: int | Expr) -> Expr:
    """Multiply index expressions; a constant is kept rightmost."""
    x, y = index(x), index(y)
    a, b = static(x), static(y)
    if a is not None:
        return Const(a * b, INDEX) if b is not None else mul(y, x)
    if b == 0:
        return Const(0, INDEX)
    if b == 1:
        return x
    if b is not None:
        match x:
            case Apply("mul", (inner, Const(c, _))):
                return mul(inner, int(c) * b)
    return Apply("mul", (x, y), INDEX)


def floordiv(x: int | Expr, y: int | Expr) -> Expr:
    """Divide non-negative index expressions, rounding down."""
    x, y = index(x), index(y)
    a, b = static(x), static(y)
    if b == 1:
        return x
    if a is not None and b:
        return Const(a // b, INDEX)
    if b is not None:
        match x:
            case Apply("mul", (inner, Const(c, _))) if int(c) % b == 0:
                return mul(inner, int(c) // b)
            case Apply("mul", (inner, Const(c, _))) if int(c) > 0 and b % int(c) == 0:
                return floordiv(inner, b // int(c))
            case Apply("floordiv", (inner, Const(c, _))):
                return floordiv(inner, int(c) * b)
    return Apply("floordiv", (x, y), INDEX)


def mod(x: int | Expr, y: int | Expr) -> Expr:
    """Give the remainder of non-negative index expressions."""
    x, y = index(x), index(y)
    a, b = static(x), static(y)
    if b == 1:
        return Const(0, INDEX)
    if a is not None and b:
        return Const(a % b, INDEX)
    if b is not None:
        match x:
            case Apply("mul", (_, Const(c, _))) if int(c) % b == 0:
                return Const(0, INDEX)
            case Apply("mod", (inner, Const(c, _))) if int(c) % b == 0:
                return mod(inner, b)
    return Apply("mod", (x, y), INDEX)


def flat_index(shape: Sequence[Expr | int], position: Sequence[Expr]) -> Expr:
    """Give the row-major offset, in elements, of `position` in an array of `shape`."""
    flat: Expr = Const(0, INDEX)
    for extent, component in zip(shape, position, strict=True):
        flat = add(mul(flat, extent), component)
    return flat
