"""What a program needs to add an op of its own, which then is one like any other.

An op is a frozen dataclass; its fields are its static parameters and its methods are its rules.
`bind` applies it: at once to arrays, or into the graph that is traced.

    @dataclass(frozen=True, eq=False)
    class Scale(LinearOp):
        factor: float
        name = "scale"
        ...

    def scale(x, factor):
        return bind(Scale(factor), x)

Rules, of which the first three are enough for most uses; `Op` says what each is given and returns:

    abstract_eval   the type of the result, or an error of stax.errors; for all uses
    evaluate        the result in NumPy, which is the meaning of the op; for eager use
    lower           one element of the result, made by the methods of `ElementBuilder` from elements
                    of the operands; for jit, which fuses the op with its neighbours
    jvp             the tangent of the result; for jvp, grad and jacfwd.  `LinearOp` has it
    transpose       cotangents of the operands the op is linear in (`Linear`); for grad and vjp
    batch           the result with one more axis in front; for vmap

Without a rule, the transform that needs it raises MissingRule, and jit runs the op on the reference
evaluator with a FallbackWarning.  `examples/custom_op.py` has all of them.
"""

from stax.lowering.element import ElementBuilder
from stax.op import ORDERED, UNORDERED, Batch, Linear, Op
from stax.operators.broadcast import LinearOp
from stax.trace import Proxy as TracedArray, bind, type_of
from stax.types import ArrayType, TupleType

__all__ = [
    "ORDERED",
    "UNORDERED",
    "ArrayType",
    "Batch",
    "ElementBuilder",
    "Linear",
    "LinearOp",
    "Op",
    "TracedArray",
    "TupleType",
    "bind",
    "type_of",
]
