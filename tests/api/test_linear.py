"""linear_transpose beside JAX's, and what is not linear."""

from typing import Any

import jax
import numpy as np
import pytest

import stax
import stax.numpy as snp

X = np.arange(3, dtype=np.float32)


def test_transposes_of_linear_functions() -> None:
    def transposed(lib: Any) -> Any:
        w = lib.numpy.arange(6.0).reshape(2, 3)
        shape = lib.ShapeDtypeStruct((3,), "float32")
        back = lib.linear_transpose(lambda x: {"a": w @ x, "b": x.sum()}, shape)
        return back({"a": lib.numpy.ones(2), "b": lib.numpy.float32(2)})

    np.testing.assert_array_equal(transposed(stax)[0], transposed(jax)[0])
    back = stax.linear_transpose(lambda x: snp.sin(2.0) * x, X)
    assert stax.jit(lambda f, ct: f(ct))(back, X)[0].shape == (3,)
    for f in (lambda x: x * x, snp.sin, lambda x: snp.float32(1.0)):
        with pytest.raises(NotImplementedError, match="is not linear"):
            stax.linear_transpose(f, 1.0)
    with pytest.raises(TypeError, match="mixes floats and integers"):
        stax.linear_transpose(lambda x: x.astype(int), 1.0)
