"""Random programs, drawn step by step: the strategy `programs`.

While it draws it keeps for each value its type (JAX's) and two bounds that make programs well
behaved: no value is larger than `size`, and a value with a `grain` is an exact multiple of it that
no order of operations can round.  Only exact values reach what jumps: comparisons, floor, argmax.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
from hypothesis import strategies as st

from tests.program_ops import (
    LAST_BIT_BINARY,
    LAST_BIT_UNARY,
    OPS,
    SMOOTH,
    Program,
    Scalar,
    Step,
    Value,
)

LENGTHS = (1, 2, 3, 5, 8, 17, 33)
LARGEST, MOST_ELEMENTS = 100.0, 3000


class Draw:
    """Draws a program step by step."""

    def __init__(self, draw: Any, dtypes: Sequence[str], families: Sequence[str]) -> None:
        self.draw = draw
        self.dtypes, self.families = tuple(dtypes), tuple(families)
        self.values: list[Value] = []
        self.steps: list[Step] = []

    # --- what is chosen among ---

    def pick(self, items: Any) -> Any:
        return self.draw(st.sampled_from(list(items)))

    def integer(self, low: int, high: int) -> int:
        return int(self.draw(st.integers(low, high)))

    def flag(self) -> bool:
        return bool(self.draw(st.booleans()))

    def shape(self, most: int = 3) -> tuple[int, ...]:
        lengths = [self.pick((*LENGTHS, *LENGTHS, 0)) for _ in range(self.integer(0, most))]
        while math.prod(lengths) > 600:
            lengths.pop()
        return tuple(lengths)

    def operand(self, test: Callable[[Value], bool] = lambda v: True) -> int | None:
        """Return the number of a value that passes `test`, later ones more often."""
        found = [i for i, v in enumerate(self.values) if test(v)]
        return None if not found else self.pick([*found, *found[-3:]])

    def companion(self, i: int, test: Callable[[Value], bool] = lambda v: True) -> int | None:
        """Return the number of a value that broadcasts with value `i`."""
        return self.operand(lambda v: test(v) and _broadcasts(v.shape, self.values[i].shape))

    def inputs(self) -> tuple[bool, ...]:
        rough = []
        base = self.shape()
        for k in range(self.integer(1, 3)):
            dtype = self.pick((*self.dtypes, *self.dtypes, "int32", "bool") if k else self.dtypes)
            weak = k > 0 and dtype in ("float32", "int32") and self.integer(0, 5) == 0
            shape = () if weak else self.pick((base, base, base[1:], self.shape()))
            floating = "float" in dtype
            is_rough = floating and not weak and self.flag()
            grain = None if is_rough else 0.25 if floating else 1.0
            size = 4.0 if "int" in dtype else 2.0
            if weak and jax.config.jax_enable_x64:
                dtype = dtype.replace("32", "64")
            type_ = jax.ShapeDtypeStruct(shape, dtype, weak_type=weak)
            self.values.append(Value(type_, size, grain))
            rough.append(is_rough)
        return tuple(rough)

    def one_input(self, shape: tuple[int, ...]) -> tuple[bool, ...]:
        self.values.append(Value(jax.ShapeDtypeStruct(shape, self.dtypes[0]), 2.0, 0.25))
        return (False,)

    def step(self) -> None:
        """Add a step of some family, unless it does not apply to the values there are."""
        made = getattr(self, "draw_" + self.pick(self.families))()
        if made is None:
            return
        op, operands, params, size, grain = made
        step = Step(op, tuple(operands), params)
        known = [x.value if isinstance(x, Scalar) else self.values[x].type for x in operands]
        slots = [i for i, x in enumerate(operands) if not isinstance(x, Scalar)]

        def run(*arrays: Any) -> Any:
            full = list(known)
            for i, x in zip(slots, arrays, strict=True):
                full[i] = x
            return OPS[op](jax, *full, **params)

        try:
            type_ = jax.eval_shape(run, *(known[i] for i in slots))
        except (TypeError, ValueError):
            return  # JAX refuses: not a program
        if math.prod(type_.shape) > MOST_ELEMENTS or size > LARGEST:
            return
        value = Value(type_, size)
        exact = value.kind in "biu" or value.is_exact(size, grain)
        self.values.append(Value(type_, size, grain if exact else None))
        self.steps.append(step)

    # --- families: each returns (op, operands, params, size, grain), or None ---

    def draw_smooth(self) -> Any:
        i = self.operand(lambda v: v.kind == "f")
        if i is None:
            return None
        op = self.pick(SMOOTH)
        return op, [i], {}, SMOOTH[op](self.values[i].size), None

    def draw_exact_unary(self) -> Any:
        i = self.operand()
        v = self.values[i]
        square = (v.size**2, v.grain and v.grain**2)
        if v.kind == "b":
            return "invert", [i], {}, 1.0, 1.0
        choices = {"neg": (v.size, v.grain), "abs": (v.size, v.grain), "square": square}
        choices["cube"] = (v.size**3, v.grain and v.grain**3)
        choices["stop"] = choices["relu"] = (v.size, v.grain)
        if v.kind == "i":
            choices["invert"] = (v.size + 1, 1.0)
        op = self.pick(choices)
        return op, [i], {}, *choices[op]

    def draw_last_bit(self) -> Any:
        i = self.operand(lambda v: v.kind == "f")
        if i is None:
            return None
        if self.flag():
            return self.pick(LAST_BIT_UNARY), [i], {}, 2.0, None
        j = self.companion(i, lambda v: v.kind == "f")
        return self.pick(LAST_BIT_BINARY), [i, j], {}, 2.0, None

    def draw_jump(self) -> Any:
        i = self.operand(lambda v: v.kind == "f" and v.grain is not None)
        if i is None:
            return None
        op = self.pick(("sign", "floor", "ceil", "round", "isfinite"))
        return op, [i], {}, self.values[i].size + 1, 1.0

    def draw_binary(self) -> Any:
        i = self.operand(lambda v: v.kind != "b")
        if i is None:
            return None
        v = self.values[i]
        number = Scalar(self.pick((2, -1, 0.5, 1.5, 3) if v.kind == "f" else (2, -1, 3)))
        if self.integer(0, 3) == 0:
            other: int | Scalar = number
            size, grain = abs(number.value), 0.5 if v.kind == "f" else 1.0
        else:
            j = self.companion(i)
            other, size, grain = j, self.values[j].size, self.values[j].grain
        sums = (v.size + size, min(v.grain, grain) if v.grain and grain else None)
        op = self.pick(("add", "sub", "mul", "maximum", "minimum", "add", "mul", "div", "arctan2"))
        if op in ("div", "arctan2"):
            return op, [i, other], {}, max(v.size, 1.6), None
        if op == "mul":
            sums = (v.size * size, v.grain * grain if v.grain and grain else None)
        return op, [i, other] if self.flag() else [other, i], {}, *sums

    def draw_power(self) -> Any:
        i = self.operand(lambda v: v.kind == "f" and v.size < 20)
        j = None if i is None else self.companion(i, lambda v: v.kind == "f")
        if j is None:
            return None
        op = self.pick(("power", "hypot"))
        size = self.values[i].size + self.values[j].size ** 2 + 1
        return op, [i, j], {}, 2 * size * (size if op == "power" else 1), None

    def draw_integer(self) -> Any:
        i = self.operand(lambda v: v.kind in "ib")
        j = None if i is None else self.companion(i, lambda v: v.kind in "ib")
        if j is None:
            return None
        v, w = self.values[i], self.values[j]
        if "b" in (v.kind, w.kind):
            return self.pick(("and", "or", "xor")), [i, j], {}, 2 * max(v.size, w.size), 1.0
        op = self.pick(("and", "or", "xor", "floor_divide", "remainder", "right_shift"))
        divisor = Scalar(self.pick((-3, -1, 2, 5, 7)))
        other = divisor if op in ("floor_divide", "remainder") else j
        return op, [i, other], {}, 2 * max(v.size, w.size, 7), 1.0

    def draw_compare(self) -> Any:
        i = self.operand(lambda v: v.grain is not None)
        if i is None:
            return None
        j = self.companion(i, lambda v: v.grain is not None)
        op = self.pick(("less", "less_equal", "greater", "equal", "not_equal"))
        return op, [i, self.pick((j, j, Scalar(0)))], {}, 1.0, 1.0

    def draw_where(self) -> Any:
        c = self.operand(lambda v: v.kind == "b")
        i = None if c is None else self.companion(c)
        if i is None:
            return None
        j = self.companion(i, lambda v: _broadcasts(v.shape, self.values[c].shape))
        if j is None:
            return None
        v, w = self.values[i], self.values[j]
        grain = min(v.grain, w.grain) if v.grain and w.grain else None
        return "where", [c, i, j], {}, max(v.size, w.size), grain

    def draw_astype(self) -> Any:
        i = self.operand(lambda v: v.grain is not None)
        if i is None:
            return None
        v = self.values[i]
        dtype = self.pick((*self.dtypes, "int32", "bool", "float32"))
        grain = v.grain if "float" in dtype else 1.0
        return "astype", [i], {"dtype": dtype}, v.size, grain

    def draw_clip(self) -> Any:
        i = self.operand(lambda v: v.kind != "b")
        if i is None:
            return None
        v = self.values[i]
        return "clip", [i, Scalar(-1), Scalar(1)], {}, max(v.size, 1.0), v.grain

    def axes(self, ndim: int) -> Any:
        if ndim == 0 or self.integer(0, 3) == 0:
            return None
        if self.flag():
            return self.integer(-ndim, ndim - 1)
        chosen = self.draw(st.lists(st.integers(0, ndim - 1), unique=True, max_size=ndim))
        return tuple(a - ndim if self.flag() else a for a in chosen)

    def draw_reduce(self) -> Any:
        i = self.operand()
        v = self.values[i]
        axis, keepdims = self.axes(len(v.shape)), self.flag()
        params = {"axis": axis, "keepdims": keepdims}
        count = _reduced(v.shape, axis)
        choices: dict[str, Any] = {"sum": (v.size * count, v.grain)}
        if count:
            choices["max"] = choices["min"] = (v.size, v.grain)
        if v.grain is not None:
            choices["any"] = choices["all"] = (1.0, 1.0)
        if v.kind == "f" and count:
            choices["mean"] = (v.size, None)
            choices["var"] = (v.size**2, None)
            choices["logsumexp"] = (v.size + 6, None)
        if count <= 3 and v.size**count < LARGEST:
            choices["prod"] = (max(v.size, 1) ** max(count, 1), v.grain and v.grain**count)
        op = self.pick(choices)
        return op, [i], params, *choices[op]

    def draw_extreme(self) -> Any:
        i = self.operand(lambda v: v.kind != "b")
        if i is None or 0 in self.values[i].shape:
            return None
        v = self.values[i]
        params = {"axis": self.axes(len(v.shape)), "keepdims": self.flag()}
        return self.pick(("highest", "lowest")), [i], params, v.size, v.grain

    def draw_argument(self) -> Any:
        i = self.operand(lambda v: v.grain is not None and v.kind != "b")
        if i is None or 0 in self.values[i].shape:
            return None
        ndim = len(self.values[i].shape)
        axis = None if ndim == 0 or self.integer(0, 3) == 0 else self.integer(-ndim, ndim - 1)
        params = {"axis": axis, "keepdims": self.flag()}
        return self.pick(("argmax", "argmin")), [i], params, 1.0, 1.0

    def draw_along(self) -> Any:
        i = self.operand(lambda v: v.kind == "f" and len(v.shape) > 0)
        if i is None:
            return None
        v = self.values[i]
        axis = self.integer(-len(v.shape), len(v.shape) - 1)
        count = v.shape[axis]
        choices: dict[str, Any] = {"cumsum": (v.size * max(count, 1), v.grain)}
        if count:
            choices["softmax"] = (1.0, None)
            choices["log_softmax"] = (2 * v.size + 5, None)
        if max(v.size, 1) ** count < LARGEST:
            choices["cumprod"] = (max(v.size, 1) ** max(count, 1), v.grain and v.grain**count)
        op = self.pick(choices)
        return op, [i], {"axis": axis}, *choices[op]

    def draw_sorted(self) -> Any:
        i = self.operand(lambda v: v.kind != "b" and len(v.shape) > 0)
        if i is None:
            return None
        v = self.values[i]
        ndim = len(v.shape)
        if self.flag():
            axis = self.integer(0, ndim - 1)
            return "cummax", [i], {"axis": axis, "reverse": self.flag()}, v.size, v.grain
        if v.grain is not None and self.flag():
            return "argsort", [i], {"axis": self.integer(-ndim, ndim - 1)}, 40.0, 1.0
        return "sort", [i], {"axis": self.integer(-ndim, ndim - 1)}, v.size, v.grain

    def draw_shape(self) -> Any:
        i = self.operand()
        v = self.values[i]
        ndim = len(v.shape)
        choices: dict[str, Callable[[], Any]] = {
            "reshape": lambda: {"shape": self.reshaped(v.shape)},
            "transpose": lambda: {"axes": tuple(self.draw(st.permutations(range(ndim))))},
            "broadcast": lambda: {"shape": (self.integer(1, 3), *self.widened(v.shape))},
            "expand": lambda: {"axis": self.integer(-ndim - 1, ndim)},
        }  # fmt: skip
        if 1 in v.shape:
            choices["squeeze"] = lambda: {"axis": v.shape.index(1)}
        if ndim:
            axis = self.integer(-ndim, ndim - 1)
            choices["flip"] = lambda: {"axis": self.pick((axis, None))}
            choices["roll"] = lambda: {
                "shift": self.integer(-3, 3),
                "axis": self.pick((axis, None)),
            }
            choices["repeat"] = lambda: {"count": self.integer(1, 3), "axis": axis}
            choices["tile"] = lambda: {"counts": (self.integer(1, 2), self.integer(1, 3))[-ndim:]}
            choices["index"] = lambda: {"index": self.index(v.shape)}
        if ndim >= 2:
            choices["tril"] = lambda: {"k": self.integer(-2, 2)}
            choices["diagonal"] = lambda: {"k": self.integer(-1, 1)}
        op = self.pick(choices)
        return op, [i], choices[op](), v.size, v.grain

    def widened(self, shape: tuple[int, ...]) -> list[int]:
        return [self.pick((1, 4)) if n == 1 else n for n in shape]

    def reshaped(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        size = math.prod(shape)
        options = [(-1,) if size else (0,), (1, *shape), (*shape, 1), (size,), shape[::-1]]
        for n in (2, 3, 5, 4):
            if size and size % n == 0:
                options += [(n, size // n), (size // n, n), (1, n, size // n)]
        return tuple(self.pick(options))

    def index(self, shape: tuple[int, ...]) -> tuple[Any, ...]:
        """Return a basic index: slices with steps, integers, None, an ellipsis."""
        items: list[Any] = []
        for n in shape[: self.integer(1, len(shape))]:
            kind = self.integer(0, 4)
            if kind == 0 and n:
                items.append(self.integer(-n, n - 1))
            elif kind == 1:
                items += [None, slice(None)]
            else:
                bounds = [self.pick((None, self.integer(-n - 1, n + 1))) for _ in range(2)]
                items.append(slice(*bounds, self.pick((None, 1, 2, 3, -1, -2))))
        if self.flag():
            items.append(Ellipsis)
        return tuple(items)

    def draw_pad(self) -> Any:
        i = self.operand(lambda v: v.kind != "b")
        if i is None:
            return None
        v = self.values[i]
        config = [(self.integer(-2, 3), self.integer(-2, 3), self.integer(0, 2)) for _ in v.shape]
        value = self.pick((0, 1, -1))
        return "pad", [i], {"value": value, "config": config}, max(v.size, 1), v.grain

    def draw_join(self) -> Any:
        i = self.operand(lambda v: len(v.shape) > 0)
        if i is None:
            return None
        v = self.values[i]
        axis = self.integer(0, len(v.shape) - 1)
        op = self.pick(("concatenate", "concatenate", "stack"))

        def fits(w: Value) -> bool:
            same = len(w.shape) == len(v.shape) and w.kind == v.kind
            free = op == "concatenate"
            return same and all(
                a == b or (free and k == axis)
                for k, (a, b) in enumerate(zip(v.shape, w.shape, strict=True))
            )

        operands = [i, *(self.operand(fits) for _ in range(self.integer(1, 2)))]
        grains = [self.values[k].grain for k in operands]
        size = max(self.values[k].size for k in operands)
        return op, operands, {"axis": axis}, size, None if None in grains else min(grains)

    def draw_take(self) -> Any:
        i = self.operand(lambda v: len(v.shape) > 0 and 0 not in v.shape)
        j = self.operand(lambda v: v.kind == "i" and len(v.shape) < 3)
        if i is None or j is None:
            return None
        v, w = self.values[i], self.values[j]
        axis = self.integer(-len(v.shape), len(v.shape) - 1)
        op = self.pick(("take", "gather", "take_along", "dynamic_slice"))
        if op == "gather":
            return op, [i, j], {}, v.size, v.grain
        if op == "dynamic_slice":
            if w.shape != ():
                return None
            params = {"axis": axis, "size": self.integer(1, v.shape[axis])}
            return op, [i, j], params, v.size, v.grain
        if op == "take_along" and len(w.shape) != len(v.shape):
            return None
        return op, [i, j], {"axis": axis}, v.size, v.grain

    def draw_update(self) -> Any:
        i = self.operand(lambda v: v.kind == "f" and len(v.shape) > 0 and 0 not in v.shape)
        j = self.operand(lambda v: v.kind == "i" and len(v.shape) < 2)
        if i is None or j is None:
            return None
        v, w = self.values[i], self.values[j]
        if w.shape == () and self.flag():
            fits = lambda u: len(u.shape) == len(v.shape) and u.type.dtype == v.type.dtype  # noqa: E731
            k = self.operand(fits)
            u = self.values[k]
            axis = self.integer(0, len(v.shape) - 1)
            grain = min(v.grain, u.grain) if v.grain and u.grain else None
            return "dynamic_update", [i, k, j], {"axis": axis}, max(v.size, u.size), grain
        # Which of several values set at one place wins is not specified, so only add there.
        op = "at_set" if w.shape == () and self.flag() else "at_add"
        count = math.prod(w.shape) if op == "at_add" else 1
        return op, [i, j, Scalar(0.5)], {}, v.size + 0.5 * max(count, 1), v.grain and 0.25

    def draw_product(self) -> Any:
        i = self.operand(lambda v: v.kind != "b" and len(v.shape) > 0)
        if i is None:
            return None
        v = self.values[i]
        op = self.pick(("matmul", "matmul", "tensordot", "einsum", "outer"))
        if op == "matmul":
            side = lambda w: w.shape[-2] if len(w.shape) > 1 else w.shape[0]  # noqa: E731
            j = self.operand(lambda w: w.kind != "b" and w.shape and side(w) == v.shape[-1])
        elif op in ("einsum", "tensordot"):
            j = self.operand(lambda w: w.kind != "b" and w.shape and v.shape[0] == w.shape[0])
        else:
            j = self.operand(lambda w: w.kind != "b")
        if j is None:
            return None
        w = self.values[j]
        params: dict[str, Any] = {}
        if op == "tensordot":
            params = {"axes": ((0,), (0,))}
        elif op == "einsum":
            params = {"spec": self.spec(len(v.shape), len(w.shape))}
        count = 1 if op == "outer" else v.shape[-1] if op == "matmul" else v.shape[0]
        if op == "einsum":
            count = math.prod(v.shape) * math.prod(w.shape[1:])
        grain = v.grain * w.grain if v.grain and w.grain else None
        return op, [i, j], params, v.size * w.size * max(count, 1), grain

    def spec(self, left: int, right: int) -> str:
        """Return an einsum of two operands that share their first index."""
        a, b = "abc"[:left], "axy"[:right]
        pool = sorted(set(a + b))
        kept = self.draw(st.lists(st.sampled_from(pool), unique=True, max_size=3))
        return f"{a},{b}->{''.join(kept)}"


def _broadcasts(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    return all(x == y or 1 in (x, y) for x, y in zip(a[::-1], b[::-1], strict=False))


def _reduced(shape: tuple[int, ...], axis: Any) -> int:
    if axis is None:
        return math.prod(shape)
    return math.prod(shape[a] for a in (axis if isinstance(axis, tuple) else (axis,)))


ALL = (
    "smooth", "smooth", "exact_unary", "jump", "binary", "binary", "power", "integer", "compare",
    "where", "where", "astype", "clip", "reduce", "reduce", "argument", "along", "sorted", "shape",
    "shape", "shape", "pad", "join", "take", "take", "update", "product", "product",
)  # fmt: skip
# Families whose compiled values must equal NumPy's bit for bit on any values, special ones too.
LAST_BIT = (
    "last_bit", "last_bit", "last_bit", "exact_unary", "integer", "compare", "where", "shape",
    "shape", "pad", "join", "take", "extreme", "jump",
)  # fmt: skip


# What compiles once for all lengths.
LENGTHLESS = ("smooth", "binary", "exact_unary", "compare", "where", "reduce", "along", "clip")


@st.composite
def programs(
    draw: Any,
    dtypes: Sequence[str] = ("float32",),
    families: Sequence[str] = ALL,
    steps: int = 10,
    shape: Sequence[int] | None = None,
) -> Program:
    """Draw a program of at most `steps` steps, of one input of `shape` if that is given."""
    made = Draw(draw, dtypes, families)
    rough = made.inputs() if shape is None else made.one_input(tuple(shape))
    for _ in range(draw(st.integers(1, steps))):
        made.step()
    count, first = len(made.values), len(rough)
    last = list(range(max(first, count - 2), count))
    more = draw(st.lists(st.integers(0, count - 1), max_size=1))
    outputs = tuple(dict.fromkeys([*last, *more])) or (0,)
    return Program(
        tuple(made.values[:first]),
        rough,
        draw(st.integers(0, 2**16)),
        tuple(made.steps),
        outputs,
    )
