"""Rare functions, which C functions from outside compute lane by lane.

The one idea: a program is given its C functions through the run time's context table, and kernels
do not see the table; so each C function has a global pointer in the module, which the driver of the
program fills in before its first kernel runs.  A vector function stores its arguments, and a loop
calls the C function through the pointer on one lane after the other, in double.

The C functions are those of `scipy.special.cython_special`, by their names there.  They need no
lock and answer any argument, so lanes that do not count may hold anything; in a tail that is masked
they hold zeros.  Arguments for which some of them would warn in Python are made NaN first; what
others report in spite of that is cleared at the end of the program, see `REPORTING`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from stax.lowering.vector_math.emit import Emitter, Value, type_suffix, vector_type

# What C functions take besides their arguments: whether to look for a Python override, always no.
_NO_DISPATCH = "i32 0"
_LARGEST_ORDER = 2.0**31 - 1.0

# The global pointer to a C function, and the name of the slot that its address comes from.
POINTER = "@stax.external.{name}"
SLOT_PREFIX = "special_"
# C functions that report errors to Python if the user has turned SciPy's error handling on: those
# built on Boost.  Their programs clear what they report, and must not hold Python's lock meanwhile.
REPORTING = frozenset(("betainc", "hyp1f1"))
_LANES = """\
define internal {vector} {symbol}({parameters}) noinline nounwind {{
entry:
  %function = load atomic ptr, ptr {pointer} unordered, align 8
  %results = alloca {vector}
  %first = alloca double
  %second = alloca double
{stores}
  br label %lane
lane:
  %i = phi i64 [ 0, %entry ], [ %next, %lane ]
{loads}
{call}
  %target = getelementptr {kind}, ptr %results, i64 %i
  store {kind} %result, ptr %target
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, {lanes}
  br i1 %more, label %lane, label %done
done:
  %all = load {vector}, ptr %results
  ret {vector} %all
}}
"""
_STORE = """\
  %at{i} = alloca {vector}
  store {vector} %a{i}, ptr %at{i}"""
_LOAD = """\
  %from{i} = getelementptr {kind}, ptr %at{i}, i64 %i
  %{name}{i} = load {kind}, ptr %from{i}"""


# C functions of a complex number, which they take and give in two registers each; with their slots
# named for the type, since there are real ones of the same names.
_COMPLEX = ("complex_wofz", "complex_loggamma", "complex_psi")


def external(k: Emitter, name: str, *arguments: Value, output: int | None = None) -> Value:
    """Call the C function `name` on each lane: its result, or the output of that number of two."""
    kind = arguments[0].kind
    suffix = type_suffix(kind, k.lanes)
    symbol = f"@stax.{name}{'' if output is None else output}.lanes.{suffix}"
    k.externals.add(name)
    k.cold_functions[symbol] = _definition(symbol, name, (kind, k.lanes), len(arguments), output)
    operands = ", ".join(f"{x.type} {x.text}" for x in arguments)
    return k.define(kind, f"call {arguments[0].type} {symbol}({operands})")


def _definition(
    symbol: str, name: str, shape: tuple[str, int], count: int, output: int | None
) -> str:
    (kind, lanes), vector, numbers = shape, vector_type(*shape), range(count)
    loaded = "x" if kind == "double" else "narrow"
    loads = [_LOAD.format(i=i, kind=kind, name=loaded) for i in numbers]
    if kind == "float":
        loads += [f"  %x{i} = fpext float %narrow{i} to double" for i in numbers]
    return _LANES.format(
        vector=vector,
        symbol=symbol,
        kind=kind,
        lanes=lanes,
        parameters=", ".join(f"{vector} %a{i}" for i in numbers),
        pointer=POINTER.format(name=name),
        stores="\n".join(_STORE.format(i=i, vector=vector) for i in numbers),
        loads="\n".join(loads),
        call="\n".join(_call(name, kind, ", ".join(f"double %x{i}" for i in numbers), output)),
    )


def _call(name: str, kind: str, operands: str, output: int | None) -> list[str]:
    exact = "%result" if kind == "double" else "%exact"
    if output is None:
        lines = [f"  {exact} = call double %function({operands}, {_NO_DISPATCH})"]
    elif name in _COMPLEX:
        pair = "{ double, double }"
        lines = [
            f"  %both = call {pair} %function({operands}, {_NO_DISPATCH})",
            f"  {exact} = extractvalue {pair} %both, {output}",
        ]
    else:
        place = ("%first", "%second")[output]
        lines = [
            f"  call void %function({operands}, ptr %first, ptr %second)",
            f"  {exact} = load double, ptr {place}",
        ]
    if kind == "float":
        lines.append("  %result = fptrunc double %exact to float")
    return lines


def _plain(name: str) -> Callable[..., Value]:
    return lambda k, *arguments: external(k, name, *arguments)


def betainc(k: Emitter, a: Value, b: Value, x: Value) -> Value:
    """NaN out of the domain, where the C function reports an error."""
    outside = (a < 0.0) | (b < 0.0) | (x < 0.0) | (x > 1.0)
    return external(k, "betainc", a, b, k.select(outside, math.nan, x))


def expn(k: Emitter, n: Value, x: Value) -> Value:
    """Orders are cut to integers, and NaN where they are negative or too large for one."""
    valid = (n >= 0.0) & (n <= _LARGEST_ORDER)
    order = k.select(valid, k.intrinsic("trunc", n.kind, n), math.nan)
    return external(k, "expn", order, x)


def _odd(name: str, output: int) -> Callable[..., Value]:
    """The sign of zero is kept, which SciPy's odd functions lose."""

    def formula(k: Emitter, x: Value) -> Value:
        return k.select(x.equals(0.0), x, external(k, name, x, output=output))

    return formula


def cosint(k: Emitter, x: Value) -> Value:
    return external(k, "sici", x, output=1)


def _complex(name: str, output: int) -> Callable[..., Value]:
    return lambda k, x, y: external(k, f"complex_{name}", x, y, output=output)


# By the name of the op: the number of arguments, and the formula.
EXTERNAL: dict[str, tuple[int, Callable[..., Value]]] = {
    "betainc": (3, betainc),
    "expn": (2, expn),
    "sinint": (1, _odd("sici", 0)),
    "cosint": (1, cosint),
    "fresnel_s": (1, _odd("fresnel", 0)),
    "fresnel_c": (1, _odd("fresnel", 1)),
    "igamma": (2, _plain("gammainc")),
    "igammac": (2, _plain("gammaincc")),
    "bessel_j": (2, _plain("jv")),
    **{name: (1, _plain(name)) for name in ("gamma", "spence")},
    **{name: (2, _plain(name)) for name in ("beta", "binom", "poch", "owens_t")},
    "wofz_real": (2, _complex("wofz", 0)),
    "wofz_imag": (2, _complex("wofz", 1)),
    "loggamma_real": (2, _complex("loggamma", 0)),
    "loggamma_imag": (2, _complex("loggamma", 1)),
    "complex_digamma_real": (2, _complex("psi", 0)),
    "complex_digamma_imag": (2, _complex("psi", 1)),
    "hyp1f1": (3, _plain("hyp1f1")),
    "hyp2f1": (4, _plain("hyp2f1")),
}
