"""Names for annotations: what functions of arrays take as arrays and as dtypes, as in jax.typing.

    >>> isinstance(1.5, ArrayLike), isinstance("1.5", ArrayLike)
    (True, False)

`ArrayLike` has traced arrays in it too.  Lists and tuples are no arrays: only `array` and
`asarray` take them.
"""

from typing import Any

import numpy as np

from stax.array import Array

__all__ = ["ArrayLike", "DTypeLike"]

ArrayLike = Array | np.ndarray | np.bool_ | np.number | bool | int | float | complex
DTypeLike = str | type[Any] | np.dtype
