"""`jax.lax`'s special functions: floating operands of one dtype and shape, or Python numbers."""

from __future__ import annotations

from typing import Any

from stax.lax.elementwise import operands
from stax.numpy.arguments import array
from stax.operators import special


def lgamma(x: Any) -> Any:
    """Return log |Gamma(x)|."""
    return special.lgamma(array("lgamma", x))


def digamma(x: Any) -> Any:
    """Return the derivative of log Gamma(x), which is NaN at its poles."""
    return special.digamma(array("digamma", x))


def polygamma(m: Any, x: Any) -> Any:
    """Return the derivative of order `m`, held fixed, of `digamma` at `x`."""
    return special.polygamma(*operands("polygamma", m, x))


def zeta(x: Any, q: Any) -> Any:
    """Return the Hurwitz zeta function: the sum of (q + k)^-x over k = 0, 1, 2, ..."""
    return special.zeta(*operands("zeta", x, q))


def igamma(a: Any, x: Any) -> Any:
    """Return the regularised lower incomplete gamma function."""
    return special.igamma(*operands("igamma", a, x))


def igammac(a: Any, x: Any) -> Any:
    """Return the regularised upper incomplete gamma function."""
    return special.igammac(*operands("igammac", a, x))


def igamma_grad_a(a: Any, x: Any) -> Any:
    """Return the derivative of `igamma` by `a`."""
    return special.igamma_grad_a(*operands("igamma_grad_a", a, x))


def random_gamma_grad(a: Any, x: Any) -> Any:
    """Return the derivative by `a` of a sample `x` of the gamma distribution of shape `a`."""
    return special.random_gamma_grad(*operands("random_gamma_grad", a, x))


def betainc(a: Any, b: Any, x: Any) -> Any:
    """Return the regularised incomplete beta function, of which `x` has a derivative."""
    return special.betainc(*operands("betainc", a, b, x))


def erf_inv(x: Any) -> Any:
    """Return the inverse of the error function: infinite at -1 and 1, NaN beyond them."""
    return special.erf_inv(array("erf_inv", x))


def bessel_i0e(x: Any) -> Any:
    """Return exp(-|x|) I_0(x), with the modified Bessel function of order 0."""
    return special.bessel_i0e(array("bessel_i0e", x))


def bessel_i1e(x: Any) -> Any:
    """Return exp(-|x|) I_1(x), with the modified Bessel function of order 1."""
    return special.bessel_i1e(array("bessel_i1e", x))
