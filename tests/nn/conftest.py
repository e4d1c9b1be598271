"""The results of JAX that the tests here compare with."""

from tests.recorded import fixtures

records, from_jax = fixtures("jax_nn")
