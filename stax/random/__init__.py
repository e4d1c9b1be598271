"""Random numbers with explicit keys: the functions of `jax.random`.

Every function takes a key (`key(seed)`, or a new one made by `split` or `fold_in`) and gives the
same numbers for it each time, eager, jitted or mapped.  The bits are JAX's for the same seed, and
so is what is made of them without rounding; other values agree with JAX's to a few last places.
`out_sharding`, JAX's placement of the result, is not taken: there is one device.

    >>> first, second = split(key(0))
    >>> uniform(first, (3,))
    Array([...], dtype=float32)
"""

from __future__ import annotations

from stax.random.choosing import categorical, choice, geometric, permutation
from stax.random.continuous import (
    cauchy,
    exponential,
    gumbel,
    laplace,
    logistic,
    pareto,
    rayleigh,
    triangular,
    wald,
    weibull_min,
)
from stax.random.counting import binomial, multinomial, poisson
from stax.random.gamma import (
    ball,
    beta,
    chisquare,
    dirichlet,
    f,
    gamma,
    generalized_normal,
    loggamma,
    t,
)
from stax.random.keys import (
    PRNGKey,
    clone,
    fold_in,
    key,
    key_data,
    key_dtype,
    key_impl,
    split,
    wrap_key_data,
)
from stax.random.matrices import multivariate_normal, orthogonal
from stax.random.normal import double_sided_maxwell, lognormal, maxwell, normal, truncated_normal
from stax.random.uniform import bernoulli, bits, rademacher, randint, uniform

__all__ = [
    "PRNGKey", "ball", "bernoulli", "beta", "binomial", "bits", "categorical", "cauchy",
    "chisquare", "choice", "clone", "dirichlet", "double_sided_maxwell", "exponential", "f",
    "fold_in", "gamma", "generalized_normal", "geometric", "gumbel", "key", "key_data", "key_dtype",
    "key_impl", "laplace", "loggamma", "logistic", "lognormal", "maxwell", "multinomial",
    "multivariate_normal", "normal", "orthogonal", "pareto", "permutation", "poisson", "rademacher",
    "randint", "rayleigh", "split", "t", "triangular", "truncated_normal", "uniform", "wald",
    "weibull_min", "wrap_key_data",
]  # fmt: skip
