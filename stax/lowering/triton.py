"""Kernels of the loop IR as Triton source text, without importing Triton.

Two shapes of kernel are printed.  A parallel loop without loops inside is flat: a program takes a
block of its iterations.  A parallel loop of vector loops is a row kernel: a program takes a row,
and a vector loop becomes one block that covers the row, or, when rows are long, a loop over blocks
with an accumulator for each lane and one reduction at the end.  A vector loop that only stores is
spread over programs as well.  Anything else raises LoweringError.

Functions that Triton has no exact instruction for are called through wrappers named `sx_...`, which
stand at the top of the text, so that an interpreter can put others in their place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stax.errors import LoweringError
from stax.lowering.loop_ir import (
    COMPARISONS,
    INDEX,
    SHIFTS,
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
    flat_index,
    identity_value,
    map_children,
    static,
    walk,
)
from stax.lowering.loop_printer import ATOM, ExpressionPrinter
from stax.types import SHORT_NAMES, bfloat16, bool_, float16, float64

LARGEST_BLOCK = 8192
_TYPES = {
    "f16": "float32", "bf16": "float32", "f32": "float32", "f64": "float64", "bool": "int1",
    **{f"i{n}": f"int{n}" for n in (8, 16, 32, 64)},
    **{f"u{n}": f"uint{n}" for n in (8, 16, 32, 64)},
}  # fmt: skip
# How an element lies in memory, where that differs.
_MEMORY = {"bool": "int8", "bf16": "bfloat16", "f16": "float16"}
# Spelled with operators on blocks; the text is formatted with the arguments.
_SPELLINGS = {
    **{"add": "{0} + {1}", "sub": "{0} - {1}", "mul": "{0} * {1}"},
    **{"floordiv": "{0} // {1}", "mod": "{0} % {1}", "neg": "-{0}", "not": "~{0}"},
    **{"eq": "{0} == {1}", "ne": "{0} != {1}", "lt": "{0} < {1}", "le": "{0} <= {1}"},
    **{"gt": "{0} > {1}", "ge": "{0} >= {1}"},
    **{"and": "{0} & {1}", "or": "{0} | {1}", "xor": "{0} ^ {1}"},
}
_CALLS = {
    **{"select": "tl.where({0}, {1}, {2})", "abs": "tl.abs({0})", "fma": "tl.fma({0}, {1}, {2})"},
    **{"floor": "tl.floor({0})", "ceil": "tl.ceil({0})", "exp": "tl.exp({0})"},
    **{"exp2": "tl.exp2({0})", "log": "tl.log({0})", "sin": "tl.sin({0})", "cos": "tl.cos({0})"},
    **{"erf": "tl.erf({0})", "is_finite": "(tl.abs({0}) < float('inf'))"},
    "logistic": "(1.0 / (1.0 + tl.exp(-{0})))",
}
_WRAPPERS = {
    "maximum": "def sx_maximum(x, y):\n    return tl.where((x >= y) | (x != x), x, y)\n",
    "minimum": "def sx_minimum(x, y):\n    return tl.where((x <= y) | (x != x), x, y)\n",
    "add": "def sx_add(x, y):\n    return x + y\n",
    "mul": "def sx_mul(x, y):\n    return x * y\n",
    "and": "def sx_and(x, y):\n    return x & y\n",
    "or": "def sx_or(x, y):\n    return x | y\n",
    "xor": "def sx_xor(x, y):\n    return x ^ y\n",
    "sign": "def sx_sign(x):\n"
    "    return tl.where(x != x, x, (x > 0).to(x.dtype) - (x < 0).to(x.dtype))\n",
    "div_signed": "def sx_div_signed(x, y):\n"
    "    is_zero = y == 0\n    is_negation = y == -1\n"
    "    quotient = x // tl.where(is_zero | is_negation, y * 0 + 1, y)\n"
    "    return tl.where(is_zero, y * 0 - 1, tl.where(is_negation, x * 0 - x, quotient))\n",
    "rem_signed": "def sx_rem_signed(x, y):\n"
    "    is_zero = y == 0\n    is_negation = y == -1\n"
    "    remainder = x % tl.where(is_zero | is_negation, y * 0 + 1, y)\n"
    "    return tl.where(is_zero, x, tl.where(is_negation, x * 0, remainder))\n",
    "div_unsigned": "def sx_div_unsigned(x, y):\n"
    "    quotient = x // tl.where(y == 0, y * 0 + 1, y)\n"
    "    return tl.where(y == 0, ~(y * 0), quotient)\n",
    "rem_unsigned": "def sx_rem_unsigned(x, y):\n"
    "    return tl.where(y == 0, x, x % tl.where(y == 0, y * 0 + 1, y))\n",
}
_LIBDEVICE = {
    **{"trunc": "trunc", "round": "rint", "expm1": "expm1", "log1p": "log1p", "tan": "tan"},
    **{"tanh": "tanh", "erfc": "erfc", "pow": "pow", "atan2": "atan2", "asin": "asin"},
    **{"acos": "acos", "atan": "atan", "sinh": "sinh", "cosh": "cosh", "asinh": "asinh"},
    **{"acosh": "acosh", "atanh": "atanh", "cbrt": "cbrt", "rem": "fmod"},
}
_EXACT = frozenset(("neg", "abs", "maximum", "minimum", "select", "sign", "floor", "ceil", "trunc"))


@dataclass(frozen=True, slots=True)
class TritonKernel:
    """Source text, the number of programs along each axis of the grid, and the block size.

    The text defines `name(*params, *extents, BLOCK)`; a bool param is passed as bytes.
    """

    name: str
    source: str
    programs: tuple[Expr, ...]
    blocked_axis: int | None
    block: int

    def grid(self, extents: Mapping[str, int]) -> tuple[int, ...]:
        """Give the launch grid for these extents."""
        sizes = [
            extents[e.name] if isinstance(e, Var) else int(static(e) or 0) for e in self.programs
        ]
        if self.blocked_axis is not None:
            sizes[self.blocked_axis] = -(-sizes[self.blocked_axis] // self.block)
        return tuple(sizes)


def emit_triton(kernel: Kernel, block: int | None = None) -> TritonKernel:
    """Print a kernel; `block` overrides the number of elements a program handles at a time."""
    return _Printer(kernel, block).emit()


class _Printer(ExpressionPrinter):
    def __init__(self, kernel: Kernel, block: int | None) -> None:
        super().__init__()
        self.kernel = kernel
        self.wrappers: dict[str, None] = {}
        # Names whose value has an element for each lane, and scratch rows held in registers.
        self.varying: set[str] = set()
        self.rows: dict[str, Buffer] = {}
        self.lane: Var | None = None
        self.loop = self.parallel_loop()
        self.inner = [s for s in self.loop.body if isinstance(s, For)]
        for node in walk(*self.loop.body):
            if isinstance(node, For) and node.kind != "vector":
                self.unsupported(f"a {node.kind} loop")
        for loop in self.inner:
            if any([isinstance(s, For) for s in walk(*loop.body)]):
                self.unsupported("nested vector loops")
        self.block, self.is_persistent = self.choose_block(block)

    def unsupported(self, what: str) -> None:
        raise LoweringError(
            f"kernel {self.kernel.name}: the Triton code generator does not support {what}.",
            advice="It prints element-wise kernels, and rows of vector loops with reductions.",
        )

    def parallel_loop(self) -> For:
        *before, last = self.kernel.body
        if not all([isinstance(s, Let) for s in before]):
            self.unsupported("scratch outside of the parallel loop")
        assert isinstance(last, For)
        return last

    @property
    def is_elementwise(self) -> bool:
        """Say whether it is one vector loop, or none, without anything to reduce."""
        updates = [n for n in walk(*self.loop.body) if isinstance(n, (Update, Alloc))]
        return len(self.inner) <= 1 and len(self.loop.body) <= 1 + len(self.lets()) and not updates

    def lets(self) -> list[Let]:
        return [s for s in self.loop.body if isinstance(s, Let)]

    def choose_block(self, block: int | None) -> tuple[int, bool]:
        counts = [static(loop.extent) for loop in self.inner]
        known = [count for count in counts if count is not None]
        if self.inner and not self.is_elementwise and len(known) == len(counts):
            covering = 1 << max(0, max(known) - 1).bit_length()
            if covering <= (block or LARGEST_BLOCK):
                return covering, True
        return block or 1024, False

    # Program

    def emit(self) -> TritonKernel:
        names = [b.name for b in self.kernel.params] + [e.name for e in self.kernel.extents]
        for stmt in self.kernel.body[:-1]:
            self.statement(stmt)
        extent = self.loop.extent
        programs: tuple[Expr, ...] = (extent,)
        blocked: int | None = None
        if not self.inner:
            blocked = 0
            self.begin_block(self.loop.var, f"{self.program(0)} * BLOCK", extent)
            self.statements(self.loop.body)
        elif self.is_elementwise:
            blocked, (loop,) = 1, self.inner
            programs = (extent, loop.extent)
            self.line(f"{self.loop.var.name} = {self.program(0)}")
            for let in self.lets():
                self.statement(let)
            self.begin_block(loop.var, f"{self.program(1)} * BLOCK", loop.extent)
            self.statements(loop.body)
        else:
            self.line(f"{self.loop.var.name} = {self.program(0)}")
            self.statements(self.loop.body)
        header = f"@triton.jit\ndef {self.kernel.name}({', '.join(names)}, BLOCK: tl.constexpr):\n"
        source = self.prelude() + header + "\n".join(self.lines) + "\n"
        return TritonKernel(self.kernel.name, source, programs, blocked, self.block)

    def program(self, axis: int) -> str:
        return f"tl.program_id({axis}).to(tl.int64)"

    def prelude(self) -> str:
        text = "import triton\nimport triton.language as tl\n"
        if any([name in _LIBDEVICE for name in self.wrappers]):
            text += "from triton.language.extra import libdevice\n"
        for name in self.wrappers:
            text += "\n\n@triton.jit\n" + (_WRAPPERS.get(name) or _libdevice_wrapper(name))
        return text + "\n\n"

    def begin_block(self, var: Var, start: str, extent: Expr) -> None:
        """Let `var` be a block of indices, and `_live` those below the extent."""
        offset = "" if start == "0" else f"{start} + "
        self.line(f"{var.name} = {offset}tl.arange(0, BLOCK).to(tl.int64)")
        self.line(f"_live = {var.name} < {self.expressions(extent)[0]}")
        self.varying.add(var.name)
        self.lane = var

    # Statements

    def statements(self, body: Sequence[Stmt]) -> None:
        for stmt in body:
            self.statement(stmt)

    def statement(self, stmt: Stmt) -> None:
        match stmt:
            case Let(var, value) | Init(var, value) | Set(var, value):
                if not isinstance(stmt, Let) and self.lane is not None:
                    self.unsupported("mutable locals inside a vector loop")
                self.note(var, value)
                self.line(f"{var.name} = {self.write(value)[0]}")
            case Store():
                self.store(stmt)
            case For():
                self.vector_loop(stmt)
            case Alloc(buffer):
                if not self.is_persistent or len(buffer.shape) != 1:
                    self.unsupported(f"scratch {buffer.name} of a row longer than a block")
                self.rows[buffer.name] = buffer
            case Update(op, var, value):
                if self.lane is None:
                    self.line(f"{var.name} = {self.combined(op, var.name, self.write(value)[0])}")
                else:
                    self.update(op, var, value)

    def note(self, var: Var, value: Expr) -> None:
        if self.is_varying(value):
            self.varying.add(var.name)

    def is_varying(self, *roots: Expr) -> bool:
        """Say whether an expression has an element for each lane."""
        for node in walk(*roots):
            if isinstance(node, Var) and node.name in self.varying:
                return True
            if isinstance(node, Load) and node.buffer.name in self.rows:
                return True
        return False

    def vector_loop(self, loop: For) -> None:
        updates = {s.var.name: s for s in loop.body if isinstance(s, Update)}
        for name, update in updates.items():
            dtype = _TYPES[SHORT_NAMES[update.var.dtype]]
            start = self.constant(identity_value(update.op, update.var.dtype), update.var.dtype)
            self.line(
                f"{name}_lanes = {start} + tl.zeros([BLOCK], tl.{dtype})"
                if dtype != "int1"
                else f"{name}_lanes = {start} | (tl.arange(0, BLOCK) < 0)"
            )
        if self.is_persistent:
            self.begin_block(loop.var, "0", loop.extent)
            self.statements(loop.body)
        else:
            start = f"{loop.var.name}_start"
            self.line(f"for {start} in range(0, {self.expressions(loop.extent)[0]}, BLOCK):")
            outer, self.indent = self.indent, self.indent + "    "
            self.begin_block(loop.var, start, loop.extent)
            self.statements(loop.body)
            self.indent = outer
        self.lane = None
        self.varying.discard(loop.var.name)
        for name, update in updates.items():
            self.wrappers[update.op] = None
            reduced = f"tl.reduce({name}_lanes, 0, sx_{update.op})"
            self.line(f"{name} = {self.combined(update.op, name, reduced)}")

    def update(self, op: str, var: Var, value: Expr) -> None:
        neutral = self.constant(identity_value(op, var.dtype), var.dtype)
        (text,) = self.write(value)
        lanes = f"{var.name}_lanes"
        self.line(f"{lanes} = {self.combined(op, lanes, f'tl.where(_live, {text}, {neutral})')}")

    def combined(self, op: str, x: str, y: str) -> str:
        self.wrappers[op] = None
        return f"sx_{op}({x}, {y})"

    def store(self, stmt: Store) -> None:
        if stmt.buffer.name in self.rows:
            if stmt.index != (self.lane,) or stmt.mask is not None:
                self.unsupported(f"scratch {stmt.buffer.name} stored other than lane by lane")
            self.line(f"{stmt.buffer.name} = {self.write(stmt.value)[0]}")
            return
        flat = flat_index(stmt.buffer.shape, stmt.index)
        at, value = self.write(flat, stmt.value)
        mask = "" if stmt.mask is None else self.write(stmt.mask)[0]
        pointer, mask = self.access(stmt.buffer, flat, at, stmt.mask, mask)
        cast = _MEMORY.get(SHORT_NAMES[stmt.buffer.dtype])
        value = f"({value}).to(tl.{cast})" if cast else value
        self.line(f"tl.store({pointer}, {value}{mask and ', mask=' + mask})")

    def access(
        self, buffer: Buffer, flat: Expr, at: str, mask: Expr | None, text: str
    ) -> tuple[str, str]:
        """Give the pointer and the mask of an access: a block of both, or one of each."""
        is_block = self.is_varying(flat) or (mask is not None and self.is_varying(mask))
        if not is_block:
            return f"{buffer.name} + {at}", text
        if not self.is_varying(flat):
            at = f"{at} + tl.zeros([BLOCK], tl.int64)"
        return f"{buffer.name} + {at}", f"_live & ({text})" if text else "_live"

    # Expressions

    def write(self, *roots: Expr) -> list[str]:
        memo: dict[int, Any] = {}
        return self.expressions(*[_flattened(root, memo) for root in roots])

    def constant(self, value: Any, dtype: Any) -> str:
        if dtype == INDEX:
            return str(int(value)) if value >= 0 else f"({int(value)})"
        number = np.asarray(value).astype(dtype)[()]
        if dtype == bool_:
            return f"tl.full([], {bool(number)}, tl.int1)"
        is_float = dtype.kind == "f" or dtype == bfloat16
        text = repr(float(number)) if is_float else repr(int(number))
        if text.lstrip("-") in ("inf", "nan"):
            text = f'float("{text}")'
        return f"tl.full([], {text}, tl.{_TYPES[SHORT_NAMES[dtype]]})"

    def expression(self, node: Any, done: Mapping[int, tuple[str, int, int]]) -> tuple[str, int]:
        match node:
            case Const(value, dtype):
                return self.constant(value, dtype), ATOM
            case Var(name):
                return name, ATOM
            case Load(buffer, index, mask):
                return self.load(
                    buffer,
                    index,
                    mask,
                    [done[id(i)][0] for i in index],
                    "" if mask is None else done[id(mask)][0],
                ), ATOM
            case _:
                return self.applied(node, [done[id(x)][0] for x in node.args]), ATOM

    def load(
        self, buffer: Buffer, index: tuple[Expr, ...], mask: Expr | None, at: list[str], text: str
    ) -> str:
        if buffer.name in self.rows:
            if index != (self.lane,) or mask is not None:
                self.unsupported(f"scratch {buffer.name} loaded other than lane by lane")
            return buffer.name
        pointer, keep = self.access(buffer, index[0], at[0], mask, text)
        loaded = f"tl.load({pointer}{keep and f', mask={keep}, other=0'})"
        if buffer.dtype == bool_:
            return f"({loaded} != 0)"
        return f"{loaded}.to(tl.float32)" if _is_small(buffer.dtype) else loaded

    def applied(self, node: Apply, args: list[str]) -> str:
        name, dtype = node.name, node.args[-1].dtype
        if name == "convert":
            return self.converted(args[0], dtype, node.dtype)
        if name == "bitcast":
            return _reread(args[0], dtype, node.dtype)
        is_float = dtype.kind == "f" or dtype == bfloat16
        if name in _SPELLINGS and not (name in ("add", "sub", "mul", "neg") and dtype == bool_):
            text = f"({_SPELLINGS[name].format(*args)})"
        elif name in _CALLS:
            text = _CALLS[name].format(*args)
        elif name in _WRAPPERS or (name in _LIBDEVICE and is_float):
            self.wrappers[name] = None
            text = f"sx_{name}({', '.join(args)})"
        elif name in SHIFTS:
            text = _shifted(name, args[0], args[1], dtype)
        elif dtype.kind in "iu" and name in ("div", "rem"):
            wrapper = f"{name}_{'signed' if dtype.kind == 'i' else 'unsigned'}"
            self.wrappers[wrapper] = None
            text = f"sx_{wrapper}({', '.join(args)})"
        elif is_float and name in ("div", "sqrt", "rsqrt"):
            text = _correctly_rounded(name, args, is_double=dtype == float64)
        else:
            self.unsupported(f"{name} of {SHORT_NAMES[dtype]}")
            text = ""
        is_exact = name in _EXACT or name in COMPARISONS or name == "is_finite"
        return text if is_exact or not _is_small(dtype) else _rounded(text, dtype)

    def converted(self, x: str, source: Any, dtype: Any) -> str:
        if dtype == bool_:
            return f"({x} != 0)"
        if _is_small(dtype):
            return _rounded(f"{x}.to(tl.float32)", dtype)
        target = f"tl.{_TYPES[SHORT_NAMES[dtype]]}"
        is_from_float = source.kind == "f" or source == bfloat16
        if dtype.kind not in "iu" or not is_from_float:
            return f"{x}.to({target})"
        # The hardware's conversion saturates on some machines only.
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        inside = f"tl.where(({x} > {float(low)}) & ({x} < {float(high)}), {x}, 0.0).to({target})"
        bounded = f"tl.where({x} >= {float(high)}, {high}, {inside})"
        return f"tl.where({x} <= {float(low)}, {low}, {bounded}).to({target})"


def _flattened(root: Any, memo: dict[int, Any]) -> Any:
    """Give every load of a param one flat index; scratch rows have one already."""
    stack = [root]
    while stack:
        node = stack[-1]
        if id(node) in memo:
            stack.pop()
            continue
        waiting = [c for c in _children(node) if id(c) not in memo]
        if waiting:
            stack.extend(waiting)
            continue
        stack.pop()
        new = map_children(node, lambda c: memo[id(c)])
        if isinstance(new, Load):
            new = Load(new.buffer, (flat_index(new.buffer.shape, new.index),), new.mask)
        memo[id(node)] = new
    return memo[id(root)]


def _children(node: Any) -> list[Any]:
    if isinstance(node, Apply):
        return list(node.args)
    if isinstance(node, Load):
        return [*node.index, *([node.mask] if node.mask is not None else [])]
    return []


def _is_small(dtype: Any) -> bool:
    return dtype in (bfloat16, float16)


def _rounded(text: str, dtype: Any) -> str:
    name = "bfloat16" if dtype == bfloat16 else "float16"
    return f"({text}).to(tl.{name}).to(tl.float32)"


def _reread(text: str, source: Any, dtype: Any) -> str:
    """Spell the bits of a value as another type; 16-bit floats are float32 outside of memory."""
    if _is_small(source):
        text = f"({text}).to(tl.{_MEMORY[SHORT_NAMES[source]]})"
    target = _MEMORY.get(SHORT_NAMES[dtype]) or _TYPES[SHORT_NAMES[dtype]]
    found = f"({text}).to(tl.{target}, bitcast=True)"
    return f"{found}.to(tl.float32)" if _is_small(dtype) else found


def _correctly_rounded(name: str, args: list[str], is_double: bool) -> str:
    """Spell division and roots so that they round to nearest, which Triton's f32 forms do not."""
    sqrt, div = (
        ("tl.sqrt({0})", "({0} / {1})") if is_double else ("tl.sqrt_rn({0})", "tl.div_rn({0}, {1})")
    )
    if name == "div":
        return div.format(*args)
    root = sqrt.format(*args)
    one = f"tl.full([], 1.0, tl.float{64 if is_double else 32})"
    return root if name == "sqrt" else div.format(one, root)


def _shifted(name: str, x: str, distance: str, dtype: Any) -> str:
    """Spell a shift that is defined for every distance; signed `>>` copies the sign."""
    bits, own = 8 * dtype.itemsize, f"tl.{_TYPES[SHORT_NAMES[dtype]]}"
    signed, unsigned = f"tl.int{bits}", f"tl.uint{bits}"
    inside = f"({distance} >= 0) & ({distance} < {bits})"
    near = f"tl.where({inside}, {distance}, {bits - 1 if name[-1] == 'c' else 0})"
    if name == "shift_right_arithmetic":
        return f"({x}.to({signed}, bitcast=True) >> {near}.to({signed})).to({own}, bitcast=True)"
    operator = "<<" if name == "shift_left" else ">>"
    moved = f"({x}.to({unsigned}, bitcast=True) {operator} {near}.to({unsigned}))"
    return f"tl.where({inside}, {moved}, 0).to({own}, bitcast=True)"


def _libdevice_wrapper(name: str) -> str:
    args = "x, y" if name in ("pow", "atan2", "rem") else "x"
    return f"def sx_{name}({args}):\n    return libdevice.{_LIBDEVICE[name]}({args})\n"
