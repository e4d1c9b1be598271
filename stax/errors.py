"""Every error of the library, and the one form their messages have.

A message has four parts in a fixed order: the rule that was broken and the op; the values,
typed, with the user's line for each; what was being done (which transform, called where); what
to do about it.  The code that notices a broken rule knows the first and the last part; `bind`,
which knows the operands and the trace, adds the other two with `StaxError.located`.

Names follow `jax.errors` where one fits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self


class StaxError(Exception):
    """Base of the library's errors: a broken rule, and optionally values, context and advice."""

    def __init__(
        self,
        rule: str,
        *,
        values: Sequence[tuple[str, str, str]] = (),
        doing: Sequence[str] = (),
        advice: str = "",
    ) -> None:
        self.rule = rule
        self.values = tuple(values)
        self.doing = tuple(doing)
        self.advice = advice
        super().__init__(str(self))

    def __str__(self) -> str:
        lines = [self.rule]
        widths = [max((len(row[i]) for row in self.values), default=0) for i in (0, 1)]
        for label, kind, where in self.values:
            lines.append(f"    {label:<{widths[0]}}  {kind:<{widths[1]}}  {where}".rstrip())
        lines += [f"  while {step}" for step in self.doing]
        lines += [f"  {line}" for line in self.advice.splitlines()]
        return "\n".join(lines)

    def located(self, values: Sequence[tuple[str, str, str]], doing: Sequence[str]) -> Self:
        """Return this error with the operands and the context, unless it has them already."""
        if self.values or self.doing:
            return self
        return type(self)(self.rule, values=values, doing=doing, advice=self.advice)


class ShapeError(StaxError, TypeError):
    """Shapes, axes or sizes do not fit the op."""


class DTypeError(StaxError, TypeError):
    """A dtype is not accepted by the op, or two dtypes do not go together."""


class ArgumentError(StaxError, TypeError):
    """An argument is not what the function accepts (not an array, not hashable, ...)."""


class ArgumentValueError(StaxError, ValueError):
    """An argument has the right type and a value that makes no sense."""


class MissingRule(StaxError, NotImplementedError):
    """An op lacks the rule that a transform needs."""


class LoweringError(StaxError, NotImplementedError):
    """A backend cannot compile an op."""


class ConcretizationTypeError(StaxError, TypeError):
    """The value of a traced array was needed where tracing has only its type."""


class TracerBoolConversionError(ConcretizationTypeError):
    """The truth of a traced array was needed (`if`, `while`, `and`, `bool()`)."""


class TracerArrayConversionError(ConcretizationTypeError):
    """A traced array was handed to NumPy, which needs its values."""


class TracerIntegerConversionError(ConcretizationTypeError):
    """A traced array was used as a Python integer (an index of a list, `range`, a shape)."""


class NonConcreteBooleanIndexError(StaxError, IndexError):
    """A traced boolean mask was used as an index, so the shape of the result is unknown."""


class UnexpectedTracerError(StaxError):
    """A traced array was used after its trace ended, or outside the function that made it."""


class InconclusiveDimensionOperation(StaxError, ValueError):
    """A comparison of symbolic extents cannot be decided for all their values."""


class ImmutableArrayError(StaxError, TypeError):
    """An array was assigned to in place."""


class DeletedArrayError(StaxError, RuntimeError):
    """An array was used after it was donated or deleted."""


class InternalError(StaxError, RuntimeError):
    """A pass broke its own rules; this is a bug in the library."""


class FallbackWarning(UserWarning):
    """A jitted function runs on the reference evaluator because a backend cannot compile an op."""
