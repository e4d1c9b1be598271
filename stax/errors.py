"""Every error of the library, and the one form their messages have.

A message has four parts in a fixed order: the rule that was broken and the op; the values,
typed, with the user's line for each; what was being done (which transform, called where); what
to do about it.  The code that notices a broken rule knows the first and the last part.  The other
two are by default what `trace` can see: the arrays the user's line handed to the library, and the
traces in force.  `bind`, which knows the operands of the op, puts them in with `located`.

Names and the classes they derive from follow `jax.errors` where one fits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

Value = tuple[str, str, str]  # a label, a type, and where it comes from


class links:
    """What this layer needs from above: the surroundings of an error (see `stax.surroundings`)."""

    surroundings: Callable[[], tuple[Sequence[Value], Sequence[str]]] = staticmethod(
        lambda: ((), ())
    )


class StaxError(Exception):
    """Base of the library's errors: a broken rule, values, context and advice.

    Values and context that are not given are found: see `stax.surroundings`.
    """

    def __init__(
        self,
        rule: str,
        *,
        values: Sequence[Value] = (),
        doing: Sequence[str] = (),
        advice: str = "",
    ) -> None:
        around = links.surroundings() if not values or not doing else ((), ())
        self.rule = rule
        self.values = tuple(values or around[0])
        self.doing = tuple(doing or around[1])
        self.advice = advice
        self._complete = bool(values)
        super().__init__(str(self))

    def __str__(self) -> str:
        lines = [self.rule]
        widths = [max((len(row[i]) for row in self.values), default=0) for i in (0, 1)]
        for label, kind, where in self.values:
            lines.append(f"    {label:<{widths[0]}}  {kind:<{widths[1]}}  {where}".rstrip())
        lines += [f"  while {step}" for step in self.doing]
        lines += [f"  {line}" for line in self.advice.splitlines()]
        return "\n".join(lines)

    def located(self, values: Sequence[Value], doing: Sequence[str]) -> Self:
        """Return this error with the operands and the context, unless it was raised with them."""
        if self._complete:
            return self
        return type(self)(self.rule, values=values, doing=doing, advice=self.advice)


class ShapeError(StaxError, TypeError, ValueError):
    """Shapes, axes or sizes do not fit the op; JAX raises a TypeError or a ValueError."""


class DTypeError(StaxError, TypeError):
    """A dtype is not accepted by the op, or two dtypes do not go together."""


class TypePromotionError(DTypeError, ValueError):
    """Operands have no common dtype, or strict promotion refuses it; a ValueError in JAX."""


class ArgumentError(StaxError, TypeError):
    """An argument is not what the function accepts (not an array, not hashable, ...)."""


class ArgumentValueError(StaxError, ValueError):
    """An argument has the right type and a value that makes no sense."""


class UnboundAxisNameError(StaxError, NameError):
    """An op names a mapped axis that no enclosing vmap has."""


class NumberRangeError(StaxError, OverflowError):
    """A Python integer does not fit the dtype that it would have."""


class IndexingError(StaxError, IndexError):
    """An index does not fit the array."""


class UnsupportedError(StaxError, NotImplementedError):
    """JAX or NumPy has it, and Stax does not."""


class MissingRule(StaxError, NotImplementedError):
    """An op lacks the rule that a transform needs."""


class LoweringError(StaxError, NotImplementedError):
    """A backend cannot compile an op."""


class JAXTypeError(StaxError, TypeError):
    """Base, under JAX's name, of what traced arrays cannot do."""


class JAXIndexError(StaxError, IndexError):
    """Base, under JAX's name, of how traced arrays cannot be an index."""


class ConcretizationTypeError(JAXTypeError):
    """The value of a traced array was needed where tracing has only its type."""


class TracerBoolConversionError(ConcretizationTypeError):
    """The truth of a traced array was needed (`if`, `while`, `and`, `bool()`)."""


class TracerArrayConversionError(JAXTypeError):
    """A traced array was handed to NumPy, which needs its values."""


class TracerIntegerConversionError(JAXTypeError):
    """A traced array was used as a Python integer (an index of a list, `range`, a shape)."""


class NonConcreteBooleanIndexError(JAXIndexError):
    """A traced boolean mask was used as an index, so the shape of the result is unknown."""


class UnexpectedTracerError(JAXTypeError):
    """A traced array was used after its trace ended, or outside the function that made it."""


class InconclusiveDimensionOperation(StaxError, ValueError):
    """A comparison of symbolic extents cannot be decided for all their values."""


class ImmutableArrayError(StaxError, TypeError):
    """An array was assigned to in place."""


class JaxRuntimeError(StaxError, RuntimeError):
    """Base, under JAX's name, of what goes wrong while a program runs."""


class StepLimitError(JaxRuntimeError):
    """A loop did not end within the steps that it was given."""


class CheckError(StaxError, ValueError):
    """A check does not hold, see stax.experimental.checkify, which calls it JaxRuntimeError."""

    def __init__(self, rule: str, **parts: Any) -> None:
        super().__init__(rule, **parts)
        self.values, self.doing = (), ()  # the rule names the line


class NonFiniteError(StaxError, FloatingPointError):
    """A NaN, or an infinity, was made while debug_nans, or debug_infs, is on."""


class DeletedArrayError(JaxRuntimeError):
    """An array was used after it was donated or deleted."""


class DerivativeError(StaxError, AssertionError):
    """A derivative is not what finite differences say."""


class InternalError(StaxError, RuntimeError):
    """A pass broke its own rules; this is a bug in the library."""


class JaxprTypeError(InternalError, TypeError):
    """A graph is not well formed."""


class KeyReuseError(JAXTypeError):
    """A random key was used twice; nothing here raises it, as in JAX outside of debug_key_reuse."""


class FallbackWarning(UserWarning):
    """A jitted function, or a loop outside of jit, runs on the reference evaluator.

    A backend cannot compile an op in it.
    """
