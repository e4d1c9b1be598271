"""Taylor-mode differentiation: derivatives of a high order along a curve, `jax.experimental.jet`.

>>> f0, (f1, f2, f3) = jet(lambda x: x**4, (2.0,), ((1.0, 0.0, 0.0),))
>>> float(f1), float(f2), float(f3)
(32.0, 48.0, 48.0)
"""

from stax.api.taylor import jet as jet

__all__ = ["jet"]
