"""The special functions of `jax.scipy.special`.

Arguments are converted to one floating type and broadcast.  Logarithms and the error function's
relatives are compositions of ops; the rest are ops of `operators.special`, right to rounding where
JAX's formulas lose digits.
"""

from __future__ import annotations

from stax.scipy.special.error_function import (
    dawsn,
    erf,
    erfc,
    erfcx,
    erfinv,
    fresnel,
    log_ndtr,
    ndtr,
    ndtri,
    owens_t,
    wofz,
)
from stax.scipy.special.gamma_family import (
    bernoulli,
    beta,
    betainc,
    betaln,
    comb,
    digamma,
    factorial,
    gamma,
    gammainc,
    gammaincc,
    gammaln,
    gammasgn,
    loggamma,
    multigammaln,
    poch,
    polygamma,
    zeta,
)
from stax.scipy.special.integrals import (
    bessel_jn,
    exp1,
    expi,
    expn,
    hyp1f1,
    hyp2f1,
    i0,
    i0e,
    i1,
    i1e,
    sici,
    spence,
)
from stax.scipy.special.logarithmic import (
    boxcox,
    boxcox1p,
    entr,
    expit,
    kl_div,
    log_softmax,
    log_softmax_over as log_softmax_over,
    logit,
    logsumexp,
    rel_entr,
    softmax,
    softmax_over as softmax_over,
    xlog1py,
    xlogy,
)
from stax.scipy.special.spherical import sph_harm_y

__all__ = [
    "bernoulli", "bessel_jn", "beta", "betainc", "betaln", "boxcox", "boxcox1p", "comb", "dawsn",
    "digamma", "entr", "erf", "erfc", "erfcx", "erfinv", "exp1", "expi", "expit", "expn",
    "factorial", "fresnel", "gamma", "gammainc", "gammaincc", "gammaln", "gammasgn", "hyp1f1",
    "hyp2f1", "i0", "i0e", "i1", "i1e", "kl_div", "log_ndtr", "log_softmax", "loggamma", "logit",
    "logsumexp", "multigammaln", "ndtr", "ndtri", "owens_t", "poch", "polygamma", "rel_entr",
    "sici", "softmax", "spence", "sph_harm_y", "wofz", "xlog1py", "xlogy", "zeta",
]  # fmt: skip
