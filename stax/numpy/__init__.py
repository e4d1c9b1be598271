"""NumPy's functions on Stax arrays: `import stax.numpy as snp` where a program says `numpy`.

Names, arguments and dtype rules are those of `jax.numpy`.  The functions are cut by kind into the
modules of this package; importing it gives arrays their indexing and methods.

    >>> x = arange(6).reshape(2, 3)
    >>> x[:, 1:].mean(axis=0)
    Array([2.5, 3.5], dtype=float32)
"""

from __future__ import annotations

import builtins as _builtins
import math
import sys as _sys

import numpy as _np

from stax import dtypes as _dtypes
from stax.array import Array
from stax.dlpack import from_dlpack
from stax.dtypes import (
    bfloat16,
    bool_,
    can_cast,
    complex64,
    complex128,
    finfo,
    float16,
    float32,
    float64,
    iinfo,
    int8,
    int16,
    int32,
    int64,
    isdtype,
    promote_types,
    result_type,
    uint8,
    uint16,
    uint32,
    uint64,
)
from stax.numpy import fft as fft, indexing as indexing, linalg as linalg, methods as methods
from stax.numpy.complex import (
    angle,
    conj,
    conjugate,
    imag,
    iscomplex,
    iscomplexobj,
    isreal,
    isrealobj,
    real,
    sort_complex,
)
from stax.numpy.convolution import (
    convolve,
    correlate,
    unwrap,
)
from stax.numpy.creation import (
    arange,
    array,
    asarray,
    astype,
    copy,
    empty,
    empty_like,
    eye,
    fromfunction,
    full,
    full_like,
    geomspace,
    identity,
    indices,
    linspace,
    logspace,
    meshgrid,
    ones,
    ones_like,
    tri,
    tril,
    triu,
    zeros,
    zeros_like,
)
from stax.numpy.editing import (
    argwhere,
    choose,
    compress,
    delete,
    extract,
    flatnonzero,
    insert,
    ix_,
    put_along_axis,
    ravel_multi_index,
    unravel_index,
)
from stax.numpy.einsum import (
    einsum,
    einsum_path,
)
from stax.numpy.elementwise import (
    acos,
    acosh,
    allclose,
    arccos,
    arccosh,
    arcsin,
    arcsinh,
    arctan,
    arctan2,
    arctanh,
    around,
    array_equal,
    array_equiv,
    asin,
    asinh,
    atan,
    atan2,
    atanh,
    cbrt,
    ceil,
    clip,
    cos,
    cosh,
    deg2rad,
    degrees,
    exp,
    exp2,
    expm1,
    fabs,
    float_power,
    floor,
    fmax,
    fmin,
    heaviside,
    hypot,
    i0,
    isclose,
    isfinite,
    isinf,
    isnan,
    isneginf,
    isposinf,
    log,
    log1p,
    log2,
    log10,
    modf,
    nan_to_num,
    nonzero,
    rad2deg,
    radians,
    reciprocal,
    rint,
    round,
    select_first as select,
    sign,
    sin,
    sinc,
    sinh,
    sqrt,
    square,
    tan,
    tanh,
    trunc,
    where,
)
from stax.numpy.files import (
    ComplexWarning,
    array_repr,
    array_str,
    frombuffer,
    fromfile,
    fromiter,
    fromstring,
    load,
    save,
    savez,
)
from stax.numpy.float_parts import (
    copysign,
    frexp,
    ldexp,
    nextafter,
    signbit,
    spacing,
)
from stax.numpy.grids import (
    c_,
    index_exp,
    mgrid,
    ogrid,
    r_,
    s_,
)
from stax.numpy.histograms import (
    histogram2d,
    histogramdd,
)
from stax.numpy.integers import (
    bitwise_count,
    gcd,
    lcm,
)
from stax.numpy.joining import (
    append,
    array_split,
    block,
    column_stack,
    concat,
    concatenate,
    dsplit,
    dstack,
    hsplit,
    hstack,
    repeat,
    split,
    stack,
    tile,
    unstack,
    vsplit,
    vstack,
)
from stax.numpy.linear import (
    cross,
    dot,
    inner,
    kron,
    matmul,
    matvec,
    outer,
    tensordot,
    vdot,
    vecdot,
    vecmat,
)
from stax.numpy.manipulation import (
    atleast_1d,
    atleast_2d,
    atleast_3d,
    broadcast_arrays,
    broadcast_shapes,
    broadcast_to,
    expand_dims,
    flip,
    fliplr,
    flipud,
    isscalar,
    matrix_transpose,
    moveaxis,
    ndim,
    permute_dims,
    ravel,
    reshape,
    resize,
    roll,
    rollaxis,
    rot90,
    shape,
    size,
    squeeze,
    swapaxes,
    transpose,
)
from stax.numpy.namespace_info import __array_namespace_info__ as __array_namespace_info__
from stax.numpy.packing import (
    packbits,
    unpackbits,
)
from stax.numpy.padding import pad
from stax.numpy.placing import (
    fill_diagonal,
    mask_indices,
    piecewise,
    place,
    put,
    trim_zeros,
)
from stax.numpy.polynomial import (
    poly,
    polyadd,
    polyder,
    polydiv,
    polyfit,
    polyint,
    polymul,
    polysub,
    polyval,
    roots,
)
from stax.numpy.quantiles import (
    median,
    nanmedian,
    nanpercentile,
    nanquantile,
    percentile,
    quantile,
)
from stax.numpy.reductions import (
    all,
    amax,
    amin,
    any,
    argmax,
    argmin,
    count_nonzero,
    cumprod,
    cumsum,
    cumulative_prod,
    cumulative_sum,
    max,
    mean,
    min,
    prod,
    ptp,
    std,
    sum,
    var,
)
from stax.numpy.sets import (
    intersect1d,
    isin,
    setdiff1d,
    setxor1d,
    union1d,
    unique,
    unique_all,
    unique_counts,
    unique_inverse,
    unique_values,
)
from stax.numpy.sorting import (
    argpartition,
    argsort,
    digitize,
    lexsort,
    partition,
    searchsorted,
    sort,
)
from stax.numpy.statistics import (
    average,
    bincount,
    corrcoef,
    cov,
    diff,
    ediff1d,
    gradient,
    histogram,
    histogram_bin_edges,
    interp,
    nanargmax,
    nanargmin,
    nancumprod,
    nancumsum,
    nanmax,
    nanmean,
    nanmin,
    nanprod,
    nanstd,
    nansum,
    nanvar,
    trapezoid,
    vander,
)
from stax.numpy.taking import (
    diag,
    diag_indices,
    diag_indices_from,
    diagflat,
    diagonal,
    take,
    take_along_axis,
    trace,
    tril_indices,
    tril_indices_from,
    triu_indices,
    triu_indices_from,
)
from stax.numpy.universal import (
    add,
    bitwise_and,
    bitwise_or,
    bitwise_xor,
    frompyfunc,
    logaddexp,
    logaddexp2,
    logical_and,
    logical_or,
    logical_xor,
    maximum,
    minimum,
    multiply,
    negative,
    subtract,
    ufunc,
)
from stax.numpy.vectorizing import (
    apply_along_axis,
    apply_over_axes,
    vectorize,
)
from stax.numpy.window_functions import (
    bartlett,
    blackman,
    hamming,
    hanning,
    kaiser,
)
from stax.operators.arithmetic import (
    absolute,
    bitwise_not,
    divide,
    divmod_ as divmod,
    equal,
    floor_divide,
    fmod,
    greater,
    greater_equal,
    invert,
    left_shift,
    less,
    less_equal,
    logical_not,
    mod,
    not_equal,
    positive,
    power,
    remainder,
    right_shift,
    true_divide,
)

abs = absolute
bitwise_invert = bitwise_not
bitwise_left_shift = left_shift
bitwise_right_shift = right_shift
pow = power
bool = bool_
int_, uint, float_, complex_ = int32, uint32, float32, complex64
single, double, csingle, cdouble = float32, float64, complex64, complex128
dtype = _np.dtype
ndarray = Array
generic, number = _np.generic, _np.number
integer, signedinteger, unsignedinteger = _np.integer, _np.signedinteger, _np.unsignedinteger
inexact, floating, complexfloating = _np.inexact, _np.floating, _np.complexfloating
character, flexible, object_ = _np.character, _np.flexible, _np.object_
iterable = _np.iterable
get_printoptions, set_printoptions = _np.get_printoptions, _np.set_printoptions
printoptions = _np.printoptions
pi, e, euler_gamma = math.pi, math.e, float(_np.euler_gamma)
inf, nan, newaxis = math.inf, math.nan, None
__array_api_version__ = methods.API_VERSIONS[-1]
methods.install_namespace(_sys.modules[__name__])


def issubdtype(arg1: object, arg2: object) -> _builtins.bool:
    """Say whether dtype `arg1` is of the kind `arg2`: a dtype, or a class such as `floating`."""
    return _dtypes.issubdtype(arg1, arg2)


__all__ = [
    "ComplexWarning", "abs", "absolute", "acos", "acosh", "add", "all", "allclose", "amax", "amin",
    "angle", "any", "append", "apply_along_axis", "apply_over_axes", "arange", "arccos", "arccosh",
    "arcsin", "arcsinh", "arctan", "arctan2", "arctanh", "argmax", "argmin", "argpartition",
    "argsort", "argwhere", "around", "array", "array_equal", "array_equiv", "array_repr",
    "array_split", "array_str", "asarray", "asin", "asinh", "astype", "atan", "atan2", "atanh",
    "atleast_1d", "atleast_2d", "atleast_3d", "average", "bartlett", "bfloat16", "bincount",
    "bitwise_and", "bitwise_count", "bitwise_invert", "bitwise_left_shift", "bitwise_not",
    "bitwise_or", "bitwise_right_shift", "bitwise_xor", "blackman", "block", "bool", "bool_",
    "broadcast_arrays", "broadcast_shapes", "broadcast_to", "c_", "can_cast", "cbrt", "cdouble",
    "ceil", "character", "choose", "clip", "column_stack", "complex64", "complex128", "complex_",
    "complexfloating", "compress", "concat", "concatenate", "conj", "conjugate", "convolve", "copy",
    "copysign", "corrcoef", "correlate", "cos", "cosh", "count_nonzero", "cov", "cross", "csingle",
    "cumprod", "cumsum", "cumulative_prod", "cumulative_sum", "deg2rad", "degrees", "delete",
    "diag", "diag_indices", "diag_indices_from", "diagflat", "diagonal", "diff", "digitize",
    "divide", "divmod", "dot", "double", "dsplit", "dstack", "dtype", "e", "ediff1d", "einsum",
    "einsum_path", "empty", "empty_like", "equal", "euler_gamma", "exp", "exp2", "expand_dims",
    "expm1", "extract", "eye", "fabs", "fft", "fill_diagonal", "finfo", "flatnonzero", "flexible",
    "flip", "fliplr", "flipud", "float16", "float32", "float64", "float_", "float_power",
    "floating", "floor", "floor_divide", "fmax", "fmin", "fmod", "frexp", "from_dlpack",
    "frombuffer", "fromfile", "fromfunction", "fromiter", "frompyfunc", "fromstring", "full",
    "full_like", "gcd", "generic", "geomspace", "get_printoptions", "gradient", "greater",
    "greater_equal", "hamming", "hanning", "heaviside", "histogram", "histogram2d",
    "histogram_bin_edges", "histogramdd", "hsplit", "hstack", "hypot", "i0", "identity", "iinfo",
    "imag",
    "index_exp", "indices", "inexact", "inf", "inner", "insert", "int8", "int16", "int32", "int64",
    "int_", "integer", "interp", "intersect1d", "invert", "isclose", "iscomplex", "iscomplexobj",
    "isdtype", "isfinite", "isin", "isinf", "isnan", "isneginf", "isposinf", "isreal", "isrealobj",
    "isscalar", "issubdtype", "iterable", "ix_", "kaiser", "kron", "lcm", "ldexp", "left_shift",
    "less", "less_equal", "lexsort", "linalg", "linspace", "load", "log", "log1p", "log2", "log10",
    "logaddexp", "logaddexp2", "logical_and", "logical_not", "logical_or", "logical_xor",
    "logspace", "mask_indices", "matmul", "matrix_transpose", "matvec", "max", "maximum", "mean",
    "median", "meshgrid", "mgrid", "min", "minimum", "mod", "modf", "moveaxis", "multiply", "nan",
    "nan_to_num", "nanargmax", "nanargmin", "nancumprod", "nancumsum", "nanmax", "nanmean",
    "nanmedian", "nanmin", "nanpercentile", "nanprod", "nanquantile", "nanstd", "nansum", "nanvar",
    "ndarray", "ndim", "negative", "newaxis", "nextafter", "nonzero", "not_equal", "number",
    "object_", "ogrid", "ones", "ones_like", "outer", "packbits", "pad", "partition", "percentile",
    "permute_dims", "pi", "piecewise", "place", "poly", "polyadd", "polyder", "polydiv", "polyfit",
    "polyint", "polymul", "polysub", "polyval", "positive", "pow", "power", "printoptions", "prod",
    "promote_types", "ptp", "put", "put_along_axis", "quantile", "r_", "rad2deg", "radians",
    "ravel", "ravel_multi_index", "real", "reciprocal", "remainder", "repeat", "reshape", "resize",
    "result_type", "right_shift", "rint", "roll", "rollaxis", "roots", "rot90", "round", "s_",
    "save", "savez", "searchsorted", "select", "set_printoptions", "setdiff1d", "setxor1d", "shape",
    "sign", "signbit", "signedinteger", "sin", "sinc", "single", "sinh", "size", "sort",
    "sort_complex", "spacing", "split", "sqrt", "square", "squeeze", "stack", "std", "subtract",
    "sum", "swapaxes", "take", "take_along_axis", "tan", "tanh", "tensordot", "tile", "trace",
    "transpose", "trapezoid", "tri", "tril", "tril_indices", "tril_indices_from", "trim_zeros",
    "triu", "triu_indices", "triu_indices_from", "true_divide", "trunc", "ufunc", "uint", "uint8",
    "uint16", "uint32", "uint64", "union1d", "unique", "unique_all", "unique_counts",
    "unique_inverse", "unique_values", "unpackbits", "unravel_index", "unsignedinteger", "unstack",
    "unwrap", "vander", "var", "vdot", "vecdot", "vecmat", "vectorize", "vsplit", "vstack", "where",
    "zeros", "zeros_like",
]  # fmt: skip
