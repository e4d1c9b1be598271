"""Mathematical functions as LLVM functions on vectors of any width.

One `MathLibrary` belongs to one LLVM module under construction.  A code generator asks it for the
symbol of a function, calls that symbol, and finally appends `text()` to its module:

    >>> library = MathLibrary()
    >>> library.call("exp", np.dtype("float32"), 16)
    '@stax.exp.f32x16'
    >>> library.text().count("define internal <16 x float> @stax.exp.f32x16(<16 x float> %x)")
    1

The functions are written here rather than taken from a vector library because none ships with
Python, and so that every lane width, and every machine with fused multiply-add, gives the same
bits.  They are right for every argument: infinities, NaN, signed zeros, subnormal arguments and
results, huge angles.  There are no tables, and no branches but one in sin, cos and tan for lanes
with huge arguments, which call the C library by name, and those of special functions around what
no lane needs.

What is rare is computed lane by lane by C functions, see `external`; they are reached through
global pointers, which whoever runs the module fills in for the names in `externals`.

A function used a few times in a module is marked `alwaysinline`, for a pass that may follow; one
used often is called, which keeps the time of code generation proportional to the source.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from stax.lowering.vector_math import (
    exponential,
    gamma,
    gamma_gradient,
    hypergeometric,
    integrals,
    inverse_error,
    logarithm,
    special,
    trigonometric,
)
from stax.lowering.vector_math.emit import Emitter, Value, intrinsic, type_suffix, vector_type
from stax.lowering.vector_math.external import EXTERNAL, POINTER

_FORMULAS: dict[str, Callable[..., Value]] = {
    "exp": exponential.exp,
    "exp2": exponential.exp2,
    "expm1": exponential.expm1,
    "tanh": exponential.tanh,
    "logistic": exponential.logistic,
    "sinh": exponential.sinh,
    "cosh": exponential.cosh,
    "log": logarithm.log,
    "log1p": logarithm.log1p,
    "asinh": logarithm.asinh,
    "acosh": logarithm.acosh,
    "atanh": logarithm.atanh,
    "pow": logarithm.pow,
    "cbrt": logarithm.cbrt,
    "sin": trigonometric.sin,
    "cos": trigonometric.cos,
    "tan": trigonometric.tan,
    "asin": trigonometric.asin,
    "acos": trigonometric.acos,
    "atan": trigonometric.atan,
    "atan2": trigonometric.atan2,
    "erf": special.erf,
    "erfc": special.erfc,
    "rsqrt": special.rsqrt,
}
# Special functions: the number of arguments, and the formula.
_SPECIAL: dict[str, tuple[int, Callable[..., Value]]] = {
    "erfcx": (1, special.erfcx),
    "erf_inv": (1, inverse_error.erf_inv),
    "ndtri": (1, inverse_error.ndtri),
    "lgamma": (1, gamma.lgamma),
    "digamma": (1, gamma.digamma),
    "polygamma": (2, gamma.polygamma),
    "zeta": (2, gamma.zeta),
    "zeta_positive": (2, gamma.zeta_positive),
    "igamma_grad_a": (2, gamma_gradient.igamma_grad_a),
    "random_gamma_grad": (2, gamma_gradient.random_gamma_grad),
    "gamma_slope": (2, gamma_gradient.gamma_slope),
    "expi": (1, integrals.expi),
    "dawsn": (1, integrals.dawsn),
    "bessel_i0e": (1, integrals.bessel_i0e),
    "bessel_i1e": (1, integrals.bessel_i1e),
    "hyp1f1_grad_a": (3, hypergeometric.slope(1, 0)),
    "hyp1f1_grad_b": (3, hypergeometric.slope(1, 0, below=True)),
    "hyp2f1_grad_a": (4, hypergeometric.slope(2, 0)),
    "hyp2f1_grad_c": (4, hypergeometric.slope(2, 0, below=True)),
    **EXTERNAL,
}
# Name to number of arguments, of the elementary functions and of all.
FUNCTIONS: dict[str, int] = {
    name: 2 if name in ("pow", "atan2") else 1 for name in (*_FORMULAS, "sqrt")
}
ARITY = FUNCTIONS | {name: count for name, (count, _) in _SPECIAL.items()}
# A function called more often than this is not inlined, unless it is hardly longer than the call.
INLINE_LIMIT = 3
_SHORT = 4
_LONG = 250

_KINDS = {np.dtype(np.float32): "float", np.dtype(np.float64): "double"}


def _kind(dtype: np.dtype) -> str:
    kind = _KINDS.get(np.dtype(dtype))
    if kind is None:
        raise TypeError(
            f"vector math works on float32 and float64, and {np.dtype(dtype)} was asked for; "
            "convert to float32 first"
        )
    return kind


@dataclass(frozen=True, slots=True)
class _Definition:
    """The text of a function between its attributes and its end, and what it depends on."""

    head: str
    body: tuple[str, ...]
    declarations: frozenset[str]
    cold_functions: tuple[str, ...]
    externals: frozenset[str]
    constants: tuple[str, ...]
    calls: frozenset[tuple[str, str]]

    def text(self, uses: int) -> str:
        short = len(self.body) <= _SHORT
        inline = short or (uses <= INLINE_LIMIT and len(self.body) <= _LONG)
        attributes = "alwaysinline nounwind" if inline else "nounwind"
        return "\n".join([f"{self.head} {attributes} {{", *self.body, "}\n"])


@functools.cache
def _define(name: str, kind: str, lanes: int, avx512: bool) -> _Definition:
    emitter = Emitter(kind, lanes, avx512)
    formula = _FORMULAS[name] if name in _FORMULAS else _SPECIAL[name][1]
    arguments = [emitter.argument(letter) for letter in "xyzu"[: ARITY[name]]]
    result = formula(emitter, *arguments)
    spelled = vector_type(kind, lanes)
    parameters = ", ".join(f"{spelled} {argument.text}" for argument in arguments)
    symbol = f"@stax.{name}.{type_suffix(kind, lanes)}"
    return _Definition(
        f"define internal {spelled} {symbol}({parameters})",
        ("entry:", *emitter.lines, f"  ret {spelled} {result.text}"),
        frozenset(emitter.declarations),
        tuple(emitter.cold_functions.values()),
        frozenset(emitter.externals),
        tuple(emitter.constants.values()),
        frozenset(emitter.calls),
    )


class MathLibrary:
    """The mathematical functions that one LLVM module uses, each defined once.

    With `avx512` they use its instructions on exponents, which give the same bits sooner.
    """

    def __init__(self, avx512: bool = False) -> None:
        self._avx512 = avx512
        self._uses: Counter[tuple[str, str, int]] = Counter()
        self._declarations: set[str] = set()

    def call(self, name: str, dtype: np.dtype, lanes: int) -> str:
        """Return the symbol to call for `name`, and count one use of it."""
        if name not in ARITY:
            raise KeyError(f"no vector function {name!r}; there are: {', '.join(ARITY)}")
        if name == "sqrt":
            return self.intrinsic(name, dtype, lanes, 1)
        kind = _kind(dtype)
        self._uses[name, kind, lanes] += 1
        return f"@stax.{name}.{type_suffix(kind, lanes)}"

    def declare(self, declaration: str) -> None:
        """Add a `declare ...` line; LLVM rejects a module that declares a symbol twice."""
        self._declarations.add(declaration)

    def intrinsic(self, name: str, dtype: np.dtype, lanes: int, arity: int) -> str:
        """Declare `llvm.<name>` for this type, and return its symbol."""
        symbol, declaration = intrinsic(name, _kind(dtype), lanes, arity)
        self.declare(declaration)
        return symbol

    @property
    def externals(self) -> tuple[str, ...]:
        """The C functions that are called through global pointers."""
        found = {name for key in self._needed() for name in self._define(key).externals}
        return tuple(sorted(found))

    def _define(self, key: tuple[str, str, int]) -> _Definition:
        return _define(*key, self._avx512)

    def _needed(self) -> dict[tuple[str, str, int], int]:
        """Return every function that is used, in the module or by another, and how often."""
        needed: dict[tuple[str, str, int], int] = dict(self._uses)
        pending = list(needed)
        while pending:
            _, _, lanes = key = pending.pop()
            for name, kind in self._define(key).calls:
                inner = (name, kind, lanes)
                if inner not in needed:
                    pending.append(inner)
                # Whoever calls instead of inlining has a reason.
                needed[inner] = needed.get(inner, 0) + INLINE_LIMIT + 1
        return needed

    def text(self) -> str:
        """Return every definition and declaration needed, each once, in a fixed order."""
        declarations = set(self._declarations)
        definitions: dict[str, None] = {}
        needed = self._needed()
        for key in sorted(needed):
            definition = self._define(key)
            declarations |= set(definition.constants)
            declarations |= definition.declarations
            for cold in definition.cold_functions:
                definitions[cold] = None
            definitions[definition.text(needed[key])] = None
        pointers = [f"{POINTER.format(name=n)} = internal global ptr null" for n in self.externals]
        lines = "".join(f"{line}\n" for line in (*pointers, *sorted(declarations)))
        return "\n".join([lines, *definitions])
