"""Print a kernel as Python that runs, and run what was printed.

The text is what a person reads in a report and a golden file, and at the same time the reference
for code generators: `execute` binds `parallel`, `vector` and the other loop kinds to `range`,
the scalar functions to NumPy's, and runs it.  Nothing else knows what a kernel means.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from stax.errors import InternalError
from stax.lowering.loop_ir import (
    INDEX,
    RETYPING,
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
    children,
    static,
)
from stax.lowering.numpy_scalar import FUNCTIONS, maximum, minimum
from stax.types import SHORT_NAMES, bool_, float32, float64

# Python's operator and how tightly it binds; comparisons do not associate, so always get brackets.
INFIX = {
    **{"or": ("|", 2), "xor": ("^", 3), "and": ("&", 4)},
    **{"eq": ("==", 1), "ne": ("!=", 1), "lt": ("<", 1), "le": ("<=", 1), "gt": (">", 1)},
    **{"ge": (">=", 1), "add": ("+", 6), "sub": ("-", 6), "mul": ("*", 7)},
    **{"floordiv": ("//", 7), "mod": ("%", 7)},
}
ATOM = 9
# Longer nests are cut by a temporary: Python's parser has a limit, and so has a reader.
_DEEPEST = 12


def print_kernel(kernel: Kernel) -> str:
    """Write a kernel as the Python function that `execute` runs."""
    return _Printer(kernel).text()


def print_expressions(roots: Sequence[Expr]) -> list[str]:
    """Write expressions as `print_kernel` does; a long one names temporaries that are not shown."""
    return _Printer(Kernel("", (), (), (), ())).expressions(*roots)


class ExpressionPrinter:
    """Prints expressions into lines of Python; how one node is spelled is up to the subclass."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.indent = "    "
        self.temporaries = 0

    def line(self, text: str) -> None:
        self.lines.append(self.indent + text)

    def expressions(self, *roots: Expr) -> list[str]:
        """Write expressions; what is used twice or nested deep gets a line of its own before."""
        uses = _uses(roots)
        done: dict[int, tuple[str, int, int]] = {}
        stack: list[Any] = list(reversed(roots))
        while stack:
            node = stack[-1]
            if id(node) in done:
                stack.pop()
                continue
            waiting = [x for x in children(node) if id(x) not in done]
            if waiting:
                stack.extend(reversed(waiting))
                continue
            stack.pop()
            text, binding = self.expression(node, done)
            depth = 1 + max([done[id(x)][2] for x in children(node)], default=0)
            is_shared = uses[id(node)] > 1 and isinstance(node, (Apply, Load))
            if is_shared or depth > _DEEPEST:
                self.temporaries += 1
                self.line(f"_{self.temporaries} = {text}")
                text, binding, depth = f"_{self.temporaries}", ATOM, 0
            done[id(node)] = text, binding, depth
        return [done[id(root)][0] for root in roots]

    def expression(self, node: Any, done: Mapping[int, tuple[str, int, int]]) -> tuple[str, int]:
        """Give the text of a node whose children are done, and how tightly it binds."""
        raise NotImplementedError


class _Printer(ExpressionPrinter):
    def __init__(self, kernel: Kernel) -> None:
        super().__init__()
        self.kernel = kernel

    def text(self) -> str:
        params = [f"{b.name}: {type_name(b)}" for b in self.kernel.params]
        params += [f"{extent.name}: int" for extent in self.kernel.extents]
        self.lines.append(f"def {self.kernel.name}({', '.join(params)}):")
        self.statements(self.kernel.body)
        return "\n".join(self.lines) + "\n"

    def statements(self, body: Sequence[Stmt]) -> None:
        if not body:
            self.line("pass")
        for stmt in body:
            self.statement(stmt)

    def statement(self, stmt: Stmt) -> None:
        match stmt:
            case For(var, extent, kind, body, going):
                self.line(f"for {var.name} in {kind}({self.expressions(extent)[0]}):")
                outer, self.indent = self.indent, self.indent + "    "
                self.statements(body)
                if going is not None:
                    self.line(f"if not ({self.expressions(going)[0]}): break")
                self.indent = outer
            case Let(var, value) | Init(var, value) | Set(var, value):
                self.line(f"{var.name} = {self.expressions(value)[0]}")
            case Update(op, var, value):
                self.update(op, var, self.expressions(value)[0])
            case Store(buffer, index, value, mask):
                *position, text = self.expressions(*index, value)
                test = "" if mask is None else f"if {self.expressions(mask)[0]}: "
                self.line(f"{test}{buffer.name}[{', '.join(position) or '()'}] = {text}")
            case Alloc(buffer):
                shape = ", ".join([str(static(extent)) for extent in buffer.shape])
                self.line(f"{buffer.name} = scratch({SHORT_NAMES[buffer.dtype]}, {shape})")

    def update(self, op: str, var: Var, value: str) -> None:
        operator = {"add": "+", "mul": "*", "and": "&", "or": "|", "xor": "^"}.get(op)
        if operator:
            self.line(f"{var.name} {operator}= {value}")
        else:
            self.line(f"{var.name} = {op}({var.name}, {value})")

    def expression(self, node: Any, done: Mapping[int, tuple[str, int, int]]) -> tuple[str, int]:
        match node:
            case Const(value, dtype):
                return constant(value, dtype), ATOM
            case Var(name):
                return name, ATOM
            case Load(buffer, index, mask):
                text = f"{buffer.name}[{', '.join([done[id(i)][0] for i in index]) or '()'}]"
                if mask is None:
                    return text, ATOM
                zero = constant(0, buffer.dtype)
                return f"({text} if {done[id(mask)][0]} else {zero})", ATOM
            case Apply(name, args, dtype):
                return self.applied(name, args, dtype, done)
        raise InternalError(f"the printer met {type(node).__name__}, which is not an expression.")

    def applied(
        self, name: str, args: tuple[Expr, ...], dtype: Any, done: Mapping[int, Any]
    ) -> tuple[str, int]:
        texts = [done[id(x)][0] for x in args]
        is_infix = name in INFIX and not (name == "sub" and dtype == bool_)
        if is_infix or (name == "div" and dtype in (float32, float64)):
            operator, binding = INFIX.get(name, ("/", 7))
            left, right = [done[id(x)][1] for x in args]
            x = texts[0] if left >= binding and binding > 1 else bracketed(texts[0], left)
            y = texts[1] if right > binding else bracketed(texts[1], right)
            return f"{x} {operator} {y}", binding
        if name in RETYPING:
            texts.append(SHORT_NAMES[dtype])
        name = "invert" if name == "not" else name
        return f"{name}({', '.join(texts)})", ATOM


def bracketed(text: str, binding: int) -> str:
    return text if binding == ATOM else f"({text})"


def _uses(roots: Sequence[Expr]) -> Counter[int]:
    uses: Counter[int] = Counter()
    stack: list[Any] = list(roots)
    while stack:
        node = stack.pop()
        uses[id(node)] += 1
        if uses[id(node)] == 1:
            stack.extend(children(node))
    return uses


def constant(value: Any, dtype: Any) -> str:
    """Write a literal; an index is a plain int, anything else says its type."""
    if dtype == INDEX:
        return str(int(value)) if value >= 0 else f"({int(value)})"
    number = np.asarray(value).astype(dtype)[()]
    if dtype == bool_:
        return f"bool_({bool(number)})"
    text = repr(int(number)) if dtype.kind in "iu" else repr(float(number))
    return f"{SHORT_NAMES[dtype]}({text})"


def type_name(buffer: Buffer) -> str:
    """Write a buffer's type, such as f32[8,n]."""
    sizes = ",".join([_size_name(extent) for extent in buffer.shape])
    return f"{SHORT_NAMES[buffer.dtype]}[{sizes or '()'}]"


def _size_name(extent: Expr | int) -> str:
    match extent:
        case Var(name):
            return name
        case _:
            known = static(extent)
            return "_" if known is None else str(known)


# Running


class _Checked:
    """An array that refuses negative indices, which NumPy would take from the end."""

    __slots__ = ("array",)

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def _position(self, index: Any) -> tuple[int, ...]:
        position = index if isinstance(index, tuple) else (index,)
        if len(position) != self.array.ndim or any([i < 0 for i in position]):
            raise IndexError(f"index {position} is out of range for shape {self.array.shape}")
        return position

    def __getitem__(self, index: Any) -> Any:
        return self.array[self._position(index)]

    def __setitem__(self, index: Any, value: Any) -> None:
        self.array[self._position(index)] = value


def _scratch(dtype: Any, *shape: int) -> _Checked:
    return _Checked(np.zeros(shape, dtype))


_NAMESPACE: dict[str, Any] = {
    **FUNCTIONS,
    **{name: d.type for d, name in SHORT_NAMES.items() if isinstance(d, np.dtype)},
    **{kind: range for kind in ("parallel", "serial", "vector", "unroll")},
    "bool_": np.bool_,
    "inf": np.inf,
    "nan": np.nan,
    "scratch": _scratch,
    "convert": lambda x, type_: FUNCTIONS["convert"](x, np.dtype(type_)),
    "bitcast": lambda x, type_: FUNCTIONS["bitcast"](x, np.dtype(type_)),
    "maximum": maximum,
    "minimum": minimum,
}


def execute(kernel: Kernel, arrays: Sequence[np.ndarray], extents: Sequence[int] = ()) -> None:
    """Run the printed kernel on arrays, which hold the params in order; outputs are written."""
    # Annotations name types that are no Python objects.
    text = "from __future__ import annotations\n" + print_kernel(kernel)
    namespace = dict(_NAMESPACE)
    exec(compile(text, f"<loop ir of {kernel.name}>", "exec"), namespace)
    with np.errstate(all="ignore"):
        namespace[kernel.name](*[_Checked(array) for array in arrays], *extents)
