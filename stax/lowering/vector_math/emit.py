"""Write the body of one LLVM function with Python's operators.

A formula is a Python function from `Value` to `Value`; evaluating it on symbolic values appends one
LLVM instruction per operation, on scalars or on vectors of any number of lanes.  So a formula reads
like the mathematics it implements, and the same text serves every vector width.

    >>> emitter = Emitter("float", 1)
    >>> x = emitter.argument("x")
    >>> (emitter.fma(x, x, 1.0) - x).text
    '%v1'
    >>> print("\\n".join(emitter.lines))
      %v0 = call float @llvm.fma.f32(float %x, float %x, float 0x3FF0000000000000)
      %v1 = fsub float %v0, %x

Nothing here contracts or reorders: what the formula says is what the processor does.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

SUFFIXES = {"float": "f32", "double": "f64", "i1": "i1", "i32": "i32", "i64": "i64"}
INTEGER_OF = {"float": "i32", "double": "i64"}
FLOAT_OF = {"i32": "float", "i64": "double"}
MANTISSA_BITS = {"float": 23, "double": 52}
EXPONENT_BIAS = {"float": 127, "double": 1023}
SIGN_BIT = {"float": -(2**31), "double": -(2**63)}
_SIZES = {"float": 4, "double": 8}
# Which mantissa AVX-512 gives, and of what.
_FROM_THREE_QUARTERS, _NAN_IF_NEGATIVE = 0b0011, 0b1000
# Adding 1.5 * 2^mantissa rounds to an integer and leaves it in the low bits of the sum.
ROUND_TO_INTEGER = {"float": 1.5 * 2.0**23, "double": 1.5 * 2.0**52}

_FLOAT_OPCODES = {"+": "fadd", "-": "fsub", "*": "fmul", "/": "fdiv"}
_INTEGER_OPCODES = {"+": "add", "-": "sub", "&": "and", "|": "or", "^": "xor"} | {
    "<<": "shl",
    ">>": "lshr",
}

# A loop over memory is the shortest code, and its speed is that of the C library.
COLD_FUNCTION = """\
define internal {vector} {symbol}({vector} %x, {vector} %fast) noinline cold nounwind {{
entry:
  %arguments = alloca {vector}
  %results = alloca {vector}
  store {vector} %x, ptr %arguments
  store {vector} %fast, ptr %results
  br label %lane
lane:
  %i = phi i64 [ 0, %entry ], [ %next, %after ]
  %source = getelementptr {kind}, ptr %arguments, i64 %i
  %target = getelementptr {kind}, ptr %results, i64 %i
  %argument = load {kind}, ptr %source
  %magnitude = call {kind} {fabs}({kind} %argument)
  %huge = fcmp oge {kind} %magnitude, {limit}
  br i1 %huge, label %library, label %after
library:
  %exact = call {kind} {library}({kind} %argument)
  store {kind} %exact, ptr %target
  br label %after
after:
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, {lanes}
  br i1 %more, label %lane, label %done
done:
  %result = load {vector}, ptr %results
  ret {vector} %result
}}
"""


def type_suffix(kind: str, lanes: int) -> str:
    """Spell a type for use in a symbol: f32, or f32x8."""
    return SUFFIXES[kind] if lanes == 1 else f"{SUFFIXES[kind]}x{lanes}"


def _library_symbol(name: str, kind: str) -> str:
    return f"@{name}f" if kind == "float" else f"@{name}"


def vector_type(kind: str, lanes: int) -> str:
    """Spell the LLVM type of `lanes` values of the scalar type `kind`."""
    return kind if lanes == 1 else f"<{lanes} x {kind}>"


def constant_text(value: float, kind: str) -> str:
    """Spell a scalar constant; LLVM writes a float as the bits of the double of equal value."""
    if kind.startswith("i"):
        return str(int(value))
    rounded = float(np.float32(value)) if kind == "float" else float(value)
    return f"0x{struct.unpack('>Q', struct.pack('>d', rounded))[0]:016X}"


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """An SSA value: its scalar type and its text; arithmetic appends to its emitter."""

    emitter: Emitter
    kind: str
    text: str

    def _binary(self, symbol: str, left: Operand, right: Operand) -> Value:
        opcodes = _INTEGER_OPCODES if self.kind.startswith("i") else _FLOAT_OPCODES
        return self.emitter.instruction(opcodes[symbol], self.kind, left, right)

    def __add__(self, other: Operand) -> Value:
        return self._binary("+", self, other)

    def __sub__(self, other: Operand) -> Value:
        return self._binary("-", self, other)

    def __rsub__(self, other: Operand) -> Value:
        return self._binary("-", other, self)

    def __mul__(self, other: Operand) -> Value:
        return self._binary("*", self, other)

    def __truediv__(self, other: Operand) -> Value:
        return self._binary("/", self, other)

    def __rtruediv__(self, other: Operand) -> Value:
        return self._binary("/", other, self)

    def __and__(self, other: Operand) -> Value:
        return self._binary("&", self, other)

    def __or__(self, other: Operand) -> Value:
        return self._binary("|", self, other)

    def __xor__(self, other: Operand) -> Value:
        return self._binary("^", self, other)

    def __lshift__(self, other: Operand) -> Value:
        return self._binary("<<", self, other)

    def __rshift__(self, other: Operand) -> Value:
        """Shift zeros in from the left."""
        return self._binary(">>", self, other)

    def __neg__(self) -> Value:
        return self.emitter.define(self.kind, f"fneg {self.type} {self.text}")

    def __invert__(self) -> Value:
        return self ^ -1

    def __lt__(self, other: Operand) -> Value:
        return self._compare("lt", other)

    def __le__(self, other: Operand) -> Value:
        return self._compare("le", other)

    def __gt__(self, other: Operand) -> Value:
        return self._compare("gt", other)

    def __ge__(self, other: Operand) -> Value:
        return self._compare("ge", other)

    def equals(self, other: Operand) -> Value:
        """Compare for equality; `==` keeps Python's meaning, the identity of the value."""
        return self._compare("eq", other)

    def _compare(self, relation: str, other: Operand) -> Value:
        if self.kind in INTEGER_OF:
            return self.emitter.comparison(f"fcmp o{relation}", self, other)
        sign = "" if relation == "eq" else "s"
        return self.emitter.comparison(f"icmp {sign}{relation}", self, other)

    @property
    def type(self) -> str:
        return vector_type(self.kind, self.emitter.lanes)

    @property
    def bits(self) -> Value:
        """Return the bit pattern as an integer."""
        return self.emitter.convert("bitcast", self, INTEGER_OF[self.kind])

    @property
    def as_float(self) -> Value:
        """Return the floating-point number with this bit pattern."""
        return self.emitter.convert("bitcast", self, FLOAT_OF[self.kind])


Operand = Value | float | int


class Emitter:
    """The instructions of one function, and the intrinsics they need declared."""

    def __init__(self, kind: str, lanes: int, avx512: bool = False) -> None:
        self.kind = kind
        self.lanes = lanes
        self.avx512 = avx512
        self.lines: list[str] = []
        self.block = "entry"
        self.declarations: set[str] = set()
        self.cold_functions: dict[str, str] = {}
        self.externals: set[str] = set()
        self.constants: dict[str, str] = {}
        self.calls: set[tuple[str, str]] = set()
        self._count = 0
        self._loops = 0
        self._branches = 0

    def argument(self, name: str) -> Value:
        return Value(self, self.kind, f"%{name}")

    def define(self, kind: str, right_hand_side: str) -> Value:
        """Append `%vN = right_hand_side`."""
        value = Value(self, kind, f"%v{self._count}")
        self._count += 1
        self.lines.append(f"  {value.text} = {right_hand_side}")
        return value

    def start_block(self, label: str) -> None:
        self.lines.append(f"{label}:")
        self.block = label

    def spell(self, operand: Operand, kind: str) -> str:
        """Return the text of an operand without its type; a number becomes a splat constant."""
        if isinstance(operand, Value):
            if operand.kind != kind:
                raise TypeError(f"operand {operand.text} is {operand.kind}, but {kind} is needed")
            return operand.text
        text = constant_text(operand, kind)
        return text if self.lanes == 1 else f"splat ({kind} {text})"

    def typed(self, operand: Operand, kind: str) -> str:
        return f"{vector_type(kind, self.lanes)} {self.spell(operand, kind)}"

    def instruction(self, opcode: str, kind: str, left: Operand, right: Operand) -> Value:
        text = f"{opcode} {self.typed(left, kind)}, {self.spell(right, kind)}"
        return self.define(kind, text)

    def comparison(self, predicate: str, left: Value, right: Operand) -> Value:
        text = f"{predicate} {self.typed(left, left.kind)}, {self.spell(right, left.kind)}"
        return self.define("i1", text)

    def convert(self, opcode: str, value: Value, kind: str) -> Value:
        text = f"{opcode} {value.type} {value.text} to {vector_type(kind, self.lanes)}"
        return self.define(kind, text)

    def widen(self, value: Value) -> Value:
        """Convert float to double, exactly; a double stays as it is."""
        return value if value.kind == "double" else self.convert("fpext", value, "double")

    def narrow(self, value: Value) -> Value:
        """Round a double to the type of the function."""
        return value if value.kind == self.kind else self.convert("fptrunc", value, self.kind)

    def select(self, condition: Value, yes: Operand, no: Operand) -> Value:
        kind = next(branch.kind for branch in (yes, no) if isinstance(branch, Value))
        return self.select_constant(condition, kind, yes, no)

    def select_constant(self, condition: Value, kind: str, yes: Operand, no: Operand) -> Value:
        """Select, where neither operand need say its type."""
        operands = f"{self.typed(yes, kind)}, {self.typed(no, kind)}"
        return self.define(kind, f"select {condition.type} {condition.text}, {operands}")

    def intrinsic(self, name: str, kind: str, *operands: Operand) -> Value:
        """Call `llvm.<name>` on operands that all have the type of the result."""
        symbol, declaration = intrinsic(name, kind, self.lanes, len(operands))
        self.declarations.add(declaration)
        arguments = ", ".join(self.typed(operand, kind) for operand in operands)
        return self.define(kind, f"call {vector_type(kind, self.lanes)} {symbol}({arguments})")

    def fma(self, left: Operand, right: Operand, addend: Operand) -> Value:
        operands = (left, right, addend)
        kind = next(operand.kind for operand in operands if isinstance(operand, Value))
        return self.intrinsic("fma", kind, *operands)

    def absolute(self, value: Value) -> Value:
        return self.intrinsic("fabs", value.kind, value)

    def sqrt(self, value: Value) -> Value:
        return self.intrinsic("sqrt", value.kind, value)

    def copysign(self, magnitude: Operand, sign: Value) -> Value:
        return self.intrinsic("copysign", sign.kind, magnitude, sign)

    def any(self, condition: Value) -> str:
        """Return the text of an i1 that is true where `condition` holds in any lane."""
        if self.lanes == 1:
            return condition.text
        symbol = f"@llvm.vector.reduce.or.v{self.lanes}i1"
        self.declarations.add(f"declare i1 {symbol}({condition.type})")
        return self.define("i1", f"call i1 {symbol}({condition.type} {condition.text})").text

    def has_exponents(self, kind: str) -> bool:
        """Say whether the processor has instructions on exponents, for vectors of this type."""
        return self.avx512 and self.lanes * _SIZES[kind] == 64

    def scaled(self, y: Operand, n: Value) -> Value:
        """Return y 2^n, rounded once, where `has_exponents` holds; n is a whole number."""
        return self._on_exponents("scalef", n.kind, self.typed(y, n.kind), self.typed(n, n.kind))

    def exponent(self, x: Value) -> Value:
        """Return floor(log2 |x|), of 0 -infinity; where `has_exponents` holds."""
        return self._on_exponents("getexp", x.kind, self.typed(x, x.kind))

    def mantissa(self, x: Value) -> Value:
        """Return x 2^-n in [3/4, 3/2), or NaN for a negative x; where `has_exponents` holds."""
        choice = _FROM_THREE_QUARTERS | _NAN_IF_NEGATIVE
        return self._on_exponents("getmant", x.kind, self.typed(x, x.kind), f"i32 {choice}")

    def _on_exponents(self, name: str, kind: str, *operands: str) -> Value:
        vector = vector_type(kind, self.lanes)
        symbol = f"@llvm.x86.avx512.mask.{name}.p{'s' if kind == 'float' else 'd'}.512"
        mask, rounding = f"i{self.lanes} -1", "i32 4"  # no lane left out, rounding as ever
        arguments = [*operands, f"{vector} poison", mask, rounding]
        types = [argument.rpartition(" ")[0] for argument in arguments]
        types = [vector if t.startswith(vector) else t for t in types]
        self.declarations.add(f"declare {vector} {symbol}({', '.join(types)})")
        return self.define(kind, f"call {vector} {symbol}({', '.join(arguments)})")

    def where_huge(self, name: str, x: Value, fast: Value, limit: float) -> Value:
        """Return `fast`, but what the C library's `name` says in the lanes where |x| >= limit.

        A lane's result must not depend on its neighbours, so the cold function tests each lane.
        """
        symbol = f"@stax.{name}.huge.{type_suffix(self.kind, self.lanes)}"
        self.cold_functions[symbol] = self._cold_definition(symbol, name, limit)
        library = f"declare {self.kind} {_library_symbol(name, self.kind)}({self.kind})"
        self.declarations |= {library, intrinsic("fabs", self.kind, 1, 1)[1]}
        some = self.any(self.absolute(x) >= limit)
        self.lines.append(f"  br i1 {some}, label %huge, label %done")
        before = self.block
        self.start_block("huge")
        exact = self.define(
            x.kind, f"call {x.type} {symbol}({x.type} {x.text}, {x.type} {fast.text})"
        )
        self.lines.append("  br label %done")
        self.start_block("done")
        phi = f"phi {x.type} [ {fast.text}, %{before} ], [ {exact.text}, %huge ]"
        return self.define(x.kind, phi)

    def _cold_definition(self, symbol: str, name: str, limit: float) -> str:
        return COLD_FUNCTION.format(
            symbol=symbol,
            vector=vector_type(self.kind, self.lanes),
            kind=self.kind,
            fabs=intrinsic("fabs", self.kind, 1, 1)[0],
            limit=constant_text(limit, self.kind),
            library=_library_symbol(name, self.kind),
            lanes=self.lanes,
        )

    def call(self, name: str, *arguments: Value) -> Value:
        """Call the library's function `name` for the type of its arguments; nothing is inlined."""
        kind = arguments[0].kind
        self.calls.add((name, kind))
        operands = ", ".join(f"{x.type} {x.text}" for x in arguments)
        symbol = f"@stax.{name}.{type_suffix(kind, self.lanes)}"
        return self.define(kind, f"call {arguments[0].type} {symbol}({operands})")

    def repeat(
        self,
        count: int,
        state: Sequence[Value],
        body: Callable[..., Sequence[Value]],
        finished: Callable[..., Value] | None = None,
    ) -> list[Value]:
        """Replace `state` by `body(i, *state)` `count` times; `i` is the text of a counter.

        The loop ends sooner if `finished(*state)` holds in all lanes.  A lane that is finished goes
        on until then, so `body` has to leave alone what is wanted of it.
        """
        label, before = f"loop{self._loops}", self.block
        counter, following = f"%{label}.i", f"%{label}.next"
        self._loops += 1
        self.lines.append(f"  br label %{label}")
        self.start_block(label)
        at = len(self.lines)
        phis = [Value(self, x.kind, f"%{label}.{i}") for i, x in enumerate(state)]
        finals = body(counter, *phis)
        starts = [(counter, "i64", "0", following)]
        starts += [
            (phi.text, phi.type, first.text, last.text)
            for phi, first, last in zip(phis, state, finals, strict=True)
        ]
        self.lines[at:at] = [
            f"  {phi} = phi {kind} [ {first}, %{before} ], [ {last}, %{self.block} ]"
            for phi, kind, first, last in starts
        ]
        more = f"%{label}.more"
        self.lines += [
            f"  {following} = add i64 {counter}, 1",
            f"  {more} = icmp ult i64 {following}, {count}",
        ]
        if finished is not None:
            unfinished = self.any(~finished(*finals))
            more = self.define("i1", f"and i1 {more}, {unfinished}").text
        self.lines.append(f"  br i1 {more}, label %{label}, label %{label}.end")
        self.start_block(f"{label}.end")
        return list(finals)

    def when(self, condition: Value, compute: Callable[[], Value], otherwise: Value) -> Value:
        """Return `compute()` where `condition` holds and `otherwise` elsewhere.

        It is computed, in all lanes, only if the condition holds in any.
        """
        label = f"when{self._branches}"
        self._branches += 1
        before, some = self.block, self.any(condition)
        self.lines.append(f"  br i1 {some}, label %{label}, label %{label}.end")
        self.start_block(label)
        found = self.select(condition, compute(), otherwise)
        self.lines.append(f"  br label %{label}.end")
        after = self.block
        self.start_block(f"{label}.end")
        ends = f"[ {otherwise.text}, %{before} ], [ {found.text}, %{after} ]"
        return self.define(found.kind, f"phi {found.type} {ends}")

    def table(self, name: str, values: Sequence[float], counter: str) -> Value:
        """Return element number `counter` of a constant table of doubles, in every lane."""
        items = ", ".join(f"double {constant_text(v, 'double')}" for v in values)
        kind = f"[{len(values)} x double]"
        self.constants[name] = f"@stax.{name} = internal constant {kind} [{items}]"
        at = self.define("ptr", f"getelementptr double, ptr @stax.{name}, i64 {counter}").text
        one = self.define("double", f"load double, ptr {at}")
        if self.lanes == 1:
            return one
        vector = vector_type("double", self.lanes)
        first = self.define("double", f"insertelement {vector} poison, double {one.text}, i64 0")
        mask = f"<{self.lanes} x i32> zeroinitializer"
        return self.define(
            "double", f"shufflevector {vector} {first.text}, {vector} poison, {mask}"
        )

    def constant(self, value: float, kind: str) -> Value:
        """Return a number as a value."""
        return Value(self, kind, self.spell(value, kind))

    def polynomial_on(
        self, x: Value, low: float, high: float, coefficients: Sequence[float]
    ) -> Value:
        """Evaluate a polynomial in u, where u goes from -1 to 1 as `x` goes from low to high."""
        scale = 2.0 / (high - low)
        return self.polynomial(self.fma(x, scale, -0.5 * (low + high) * scale), coefficients)

    def polynomial(self, x: Value, coefficients: Sequence[float]) -> Value:
        """Evaluate `coefficients[0] + coefficients[1] x + ...` by Horner's rule.

        Horner needs the fewest instructions; neighbouring vectors keep the pipeline full.
        """
        *lower, top = coefficients
        result: Operand = top
        for coefficient in reversed(lower):
            result = self.fma(result, x, coefficient)
        assert isinstance(result, Value)
        return result

    def two_to_the(self, shifted: Value, bias: int = 0) -> Value:
        """Build 2^(n + bias) from `shifted` = n + ROUND_TO_INTEGER, whose low bits hold n."""
        if not bias and self.has_exponents(shifted.kind):
            return self.scaled(1.0, shifted - ROUND_TO_INTEGER[shifted.kind])
        mantissa = MANTISSA_BITS[shifted.kind]
        exponent = (EXPONENT_BIAS[shifted.kind] + bias) << mantissa
        return ((shifted.bits << mantissa) + exponent).as_float


def intrinsic(name: str, kind: str, lanes: int, arity: int) -> tuple[str, str]:
    """Return the symbol of an intrinsic overloaded on one type, and its declaration."""
    element = SUFFIXES[kind]
    symbol = f"@llvm.{name}.{element if lanes == 1 else f'v{lanes}{element}'}"
    spelled = vector_type(kind, lanes)
    return symbol, f"declare {spelled} {symbol}({', '.join([spelled] * arity)})"
