"""An estimate of a density from a sample: a normal distribution around each point of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import stax.numpy as snp
from stax import random, types
from stax.errors import ArgumentValueError, ShapeError, UnsupportedError
from stax.numpy.arguments import array, inexact, promoted
from stax.scipy import special
from stax.scipy.stats.multivariate_normal import whitened
from stax.tree_util import register_pytree_node_class

__all__ = ["gaussian_kde"]


@register_pytree_node_class
@dataclass(frozen=True, init=False)
class gaussian_kde:
    """The density estimated from a `dataset` of shape (n,) or (dimensions, n), with `weights`.

    `bw_method` gives the factor by which the kernels are narrower than the sample: "scott",
    "silverman", a number, or a function of the estimate.  Raises ArgumentValueError or ShapeError
    for samples of less than two elements and weights that do not go with them.
    """

    neff: Any
    dataset: Any
    weights: Any
    covariance: Any
    inv_cov: Any

    def __init__(self, dataset: Any, bw_method: Any = None, weights: Any = None) -> None:
        dataset = snp.atleast_2d(_real(dataset))
        if dataset.size < 2:
            raise ArgumentValueError(
                "gaussian_kde: a sample of less than two elements has no width.",
                advice="Pass an array of shape (n,) or (dimensions, n).",
            )
        if weights is None:
            dataset = inexact("gaussian_kde", dataset)
            weights = snp.full(dataset.shape[1], 1 / dataset.shape[1], dataset.dtype)
        else:
            both = promoted("gaussian_kde", (dataset, array("gaussian_kde", weights)))
            dataset, weights = (inexact("gaussian_kde", v) for v in both)
            weights = snp.atleast_1d(weights) / snp.sum(weights)
            if weights.shape != dataset.shape[1:]:
                raise ShapeError(
                    f"gaussian_kde: weights {weights.type} for a sample {dataset.type}.",
                    advice="There is one weight for each element of the sample's last axis.",
                )
        self._set(dataset=dataset, weights=weights, neff=1 / snp.sum(weights**2))
        factor = self._factor("scott" if bw_method is None else bw_method)
        apart = dataset - (dataset @ weights)[:, None]
        spread = (apart * weights) @ apart.T / (1 - snp.sum(weights**2))
        inverse = snp.linalg.inv(spread)
        self._set(covariance=spread * factor**2, inv_cov=inverse / factor**2)

    def _set(self, **fields: Any) -> None:
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    def _factor(self, method: Any) -> Any:
        """Return what the deviations of the sample are multiplied with."""
        power = -1 / (self.d + 4)
        if isinstance(method, str) and method in ("scott", "silverman"):
            count = self.neff if method == "scott" else self.neff * (self.d + 2) / 4
            return count**power
        if callable(method):
            return method(self)
        if isinstance(method, str) or snp.ndim(method):
            raise ArgumentValueError(
                f"gaussian_kde: there is no bw_method {method!r}.",
                advice="Use 'scott', 'silverman', a number, or a function of the estimate.",
            )
        return method

    def tree_flatten(self) -> tuple[Any, None]:
        """Return the arrays of the estimate."""
        return (self.neff, self.dataset, self.weights, self.covariance, self.inv_cov), None

    @classmethod
    def tree_unflatten(cls, aux: None, children: Any) -> gaussian_kde:
        """Return the estimate of these arrays."""
        del aux
        made = object.__new__(cls)
        names = ("neff", "dataset", "weights", "covariance", "inv_cov")
        made._set(**dict(zip(names, children, strict=True)))
        return made

    @property
    def d(self) -> Any:
        """The number of dimensions."""
        return self.dataset.shape[0]

    @property
    def n(self) -> Any:
        """The number of elements of the sample."""
        return self.dataset.shape[1]

    def _log_kernels(self, points: Any, covariance: Any) -> Any:
        """Return the logarithm at each point (rows) of the density around each element."""
        factor = snp.linalg.cholesky(covariance)
        here, there = whitened(points, factor), whitened(self.dataset.T, factor)
        squares = snp.sum((here[:, None] - there[None]) ** 2, axis=-1)
        scales = snp.sum(snp.log(snp.diagonal(factor)))
        return -squares / 2 - scales - self.d / 2 * math.log(2 * math.pi)

    def _rows(self, points: Any) -> Any:
        """Return points of shape (dimensions, m) as rows, in the dtype of the sample."""
        points = snp.atleast_2d(_real(points))
        if points.shape[0] != self.d and points.shape == (1, self.d):
            points = points.T
        if points.shape[0] != self.d:
            raise ShapeError(
                f"gaussian_kde: points {points.type} for a sample {self.dataset.type}.",
                advice="The first axis of both is the dimension.",
            )
        return inexact("gaussian_kde", promoted("gaussian_kde", (points, self.dataset))[0]).T

    def evaluate(self, points: Any) -> Any:
        """Return the density at the points of shape (dimensions, m), or (m,) in one dimension."""
        kernels = self._log_kernels(self._rows(points), self.covariance)
        return snp.sum(self.weights * snp.exp(kernels), axis=-1)

    def __call__(self, points: Any) -> Any:
        """Return `evaluate(points)`."""
        return self.evaluate(points)

    def pdf(self, x: Any) -> Any:
        """Return `evaluate(x)`."""
        return self.evaluate(x)

    def logpdf(self, x: Any) -> Any:
        """Return the logarithm of the density at `x`."""
        kernels = self._log_kernels(self._rows(x), self.covariance)
        return special.logsumexp(kernels + snp.log(self.weights), axis=-1)

    def integrate_gaussian(self, mean: Any, cov: Any) -> Any:
        """Return the integral of the density times that of a normal distribution."""
        mean, cov = snp.atleast_1d(snp.squeeze(mean)), snp.atleast_2d(cov)
        if mean.shape != (self.d,) or cov.shape != (self.d, self.d):
            raise ShapeError(
                f"gaussian_kde: mean {mean.type} and cov {cov.type} in {self.d} dimensions.",
                advice="They are a vector and a matrix of that length.",
            )
        kernels = self._log_kernels(mean[None], self.covariance + cov)
        return snp.sum(self.weights * snp.exp(kernels))

    def integrate_box_1d(self, low: Any, high: Any) -> Any:
        """Return the probability between `low` and `high`, in one dimension."""
        if self.d != 1 or snp.ndim(low) or snp.ndim(high):
            raise ShapeError(
                "gaussian_kde: integrate_box_1d takes two numbers and is for one dimension.",
                advice="Call it once for each interval: stax.vmap does.",
            )
        deviation = snp.sqrt(self.covariance[0, 0])
        ends = [(end - self.dataset[0]) / deviation for end in (low, high)]
        return snp.sum(self.weights * (special.ndtr(ends[1]) - special.ndtr(ends[0])))

    def integrate_kde(self, other: gaussian_kde) -> Any:
        """Return the integral of the product with another estimated density."""
        if other.d != self.d:
            raise ShapeError(
                f"gaussian_kde: one density has {self.d} dimensions, the other {other.d}.",
                advice="Both must have the same dimensions.",
            )
        kernels = self._log_kernels(other.dataset.T, self.covariance + other.covariance)
        return other.weights @ (snp.exp(kernels) @ self.weights)

    def resample(self, key: Any, shape: Any = ()) -> Any:
        """Return random vectors of the density, of shape (dimensions, *shape)."""
        places, moves = random.split(key)
        chosen = random.choice(places, self.n, shape=shape, p=self.weights)
        zero = snp.zeros(self.d, self.covariance.dtype)
        noise = random.multivariate_normal(
            moves, zero, self.covariance, shape=shape, dtype=self.dataset.dtype
        )
        return self.dataset[:, chosen] + noise.T

    def integrate_box(self, low_bounds: Any, high_bounds: Any, maxpts: Any = None) -> Any:
        """Raise UnsupportedError: boxes of several dimensions have no closed form."""
        raise UnsupportedError(
            "gaussian_kde: integrate_box is not supported.", advice="Use integrate_box_1d."
        )

    def set_bandwidth(self, bw_method: Any = None) -> Any:
        """Raise UnsupportedError: an estimate does not change."""
        raise UnsupportedError(
            "gaussian_kde: set_bandwidth is not supported, because an estimate does not change.",
            advice="Make another: gaussian_kde(dataset, bw_method).",
        )


def _real(x: Any) -> Any:
    x = array("gaussian_kde", x)
    if types.is_complex(x.dtype):
        raise UnsupportedError(
            "gaussian_kde: complex numbers have no density here.",
            advice="Pass real and imaginary parts as two dimensions.",
        )
    return x
