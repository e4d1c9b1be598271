"""Arguments that samplers share: the dtype of what is drawn, and its shape.

A dtype is the default one (float32, int32; 64 bits with enable_x64) unless given.  A shape that is
not given is that to which the parameters of a distribution broadcast; one that is given has to be
what they broadcast to together with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stax import types
from stax.errors import ArgumentValueError, ShapeError, TypePromotionError
from stax.numpy.arguments import array
from stax.operators.broadcast import broadcast_to
from stax.operators.elementwise import convert
from stax.types import ArrayType, Shape, canonical_shape, check_dtype


def float_type(name: str, dtype: Any) -> Any:
    """Return the floating dtype to draw in; raises ArgumentValueError for any other."""
    found = types.float_dtype() if dtype is None else check_dtype(dtype)
    return _of_kind(name, found, types.is_float(found), "a floating")


def inexact_type(name: str, dtype: Any) -> Any:
    """Return the floating or complex dtype to draw in; raises ArgumentValueError for any other."""
    found = types.float_dtype() if dtype is None else check_dtype(dtype)
    return _of_kind(name, found, types.is_inexact(found), "a floating or complex")


def integer_type(name: str, dtype: Any) -> Any:
    """Return the integer dtype to draw in; raises ArgumentValueError for any other."""
    found = types.int_dtype() if dtype is None else check_dtype(dtype)
    return _of_kind(name, found, types.is_integer(found), "an integer")


def _of_kind(name: str, dtype: Any, holds: bool, kind: str) -> Any:
    if not holds:
        raise ArgumentValueError(
            f"{name} draws in {kind} dtype, not in {types.SHORT_NAMES[dtype]}.",
            advice="Convert the result with astype.",
        )
    return dtype


def sample_shape(name: str, shape: Any, parameters: Sequence[Shape]) -> Shape:
    """Return the shape to draw; raises ShapeError if parameters do not broadcast to a given one."""
    if shape is None:
        return types.broadcast_shapes(*parameters)
    wanted = canonical_shape(shape)
    if types.broadcast_shapes(wanted, *parameters) != wanted:
        shown = ", ".join(map(str, parameters))
        raise ShapeError(
            f"{name}: parameters of shapes {shown} do not broadcast to the shape {wanted}.",
            advice="The shape is that of the whole result, parameters included.",
        )
    return wanted


def parameters(name: str, shape: Any, dtype: Any, *given: Any) -> tuple[Shape, list[Any]]:
    """Return the shape to draw, and the parameters of a distribution in it and in `dtype`.

    Raises TypePromotionError for a parameter of a wider dtype.
    """
    found = [array(name, x) for x in given]
    for x in found:
        if x.dtype != dtype and types.promote(x.type, ArrayType(dtype, ()))[0] != dtype:
            raise TypePromotionError(
                f"{name}: a parameter of type {x.type} does not fit the dtype "
                f"{types.SHORT_NAMES[dtype]}.",
                advice="Draw in its dtype, or convert it with astype.",
            )
    wanted = sample_shape(name, shape, [x.shape for x in found])
    return wanted, [broadcast_to(convert(x, dtype), wanted) for x in found]
