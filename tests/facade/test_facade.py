"""Each function of the facade beside JAX's: types, values, compiled values, slopes, errors.

The tables say how a function is called; a new function takes one line there, and the last test
says which ones are missing.  `pytest -m slow tests/facade` draws many more calls of each, in 64
bits too (STAX_FACADE_EXAMPLES says how many).  Values at awkward points are compared with NumPy's
in tests/numpy; the families of scipy.stats have a table of their own in tests/scipy.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import jax
import pytest
from hypothesis import Phase, given, settings, strategies as st

import stax
from tests.facade import lax_table, numpy_table, other_tables
from tests.facade.checking import Entry, check
from tests.facade.drawing import Source

EXAMPLES = int(os.environ.get("STAX_FACADE_EXAMPLES", "40"))
TABLES = {
    "numpy": numpy_table.TABLE,
    "lax": lax_table.TABLE,
    "nn": other_tables.NN,
    "scipy.special": other_tables.SPECIAL,
    "numpy.linalg": other_tables.LINALG,
    "numpy.fft": other_tables.FFT,
    "ops": other_tables.OPS,
}
# What takes JAX seconds to compile is compared in the slow test only; the values are compared with
# SciPy's and NumPy's in tests/scipy/test_special.py and tests/numpy/test_sets.py.
COSTLY = {
    *(f"lax.{name}" for name in ("igamma", "igammac", "igamma_grad_a", "random_gamma_grad")),
    *(f"lax.{name}" for name in ("betainc", "zeta")),
    *(f"scipy.special.{name}" for name in ("hyp1f1", "hyp2f1", "zeta", "beta", "betaln", "poch")),
    *(f"scipy.special.{name}" for name in ("betainc", "gammainc", "gammaincc", "sph_harm_y")),
    *(f"scipy.special.{name}" for name in ("exp1", "expi", "expn", "comb", "spence")),
    *(f"numpy.{name}" for name in ("setxor1d", "intersect1d", "setdiff1d", "union1d")),
}
# A call is small when it is drawn; shrinking it would compile hundreds of others.
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
CASES = [f"{module}.{name}" for module, table in TABLES.items() for name in table]


def member(library: Any, path: str) -> Any:
    """Return the function of a library with a dotted name."""
    for name in path.split("."):
        library = getattr(library, name, None)
    return library


def entry_of(path: str) -> Entry:
    module, _, name = path.rpartition(".")
    return TABLES[module][name]


def compare(path: str, data: Any, x64: bool, slopes: bool) -> None:
    """Draw one call of a function and compare it."""
    entry = entry_of(path)
    with jax.enable_x64(x64), stax.enable_x64(x64):
        call = data.draw(st.composite(lambda draw: entry.kind(Source(draw, x64)))())
        check(member(stax, path), member(jax, path), entry, call, slopes)


PRESENT = [path for path in CASES if member(stax, path) and member(jax, path)]


@pytest.mark.parametrize("path", [path for path in PRESENT if path not in COSTLY])
@settings(max_examples=2, phases=PHASES)
@given(data=st.data())
def test_like_jax(path: str, data: Any) -> None:
    # JAX takes far longer to compile slopes than Stax takes for everything, so few are compared.
    slopes = data.draw(st.integers(0, 7)) == 0
    compare(path, data, False, slopes)


@pytest.mark.slow
@pytest.mark.parametrize("path", PRESENT)
@settings(max_examples=EXAMPLES, phases=PHASES)
@given(data=st.data(), x64=st.booleans())
def test_like_jax_thoroughly(path: str, data: Any, x64: bool) -> None:
    compare(path, data, x64, True)


# What is checked elsewhere: the file, which must mention the name.
APART = {
    "numpy": {
        "tests/facade/test_files.py": "array_repr array_str frombuffer fromfile fromiter fromstring"
        " load save savez finfo iinfo printoptions get_printoptions set_printoptions einsum_path",
        "tests/facade/test_orders.py": "partition argpartition roots",
        "tests/numpy/test_universal.py": "frompyfunc",
        "tests/numpy/test_editing.py": "vectorize",
        "tests/test_array.py": "from_dlpack",
    },
    "lax": {
        "tests/test_lax_products.py": "ragged_dot_general",
        "tests/lax/test_reductions.py": "associative_scan",
        "tests/control/test_control_flow.py": "cond fori_loop map scan switch while_loop",
        "tests/test_custom_solves.py": "custom_linear_solve custom_root",
        "tests/operators/test_collective.py": "all_gather all_to_all axis_index pbroadcast pmax"
        " pmean pmin ppermute pshuffle psum psum_scatter pswapaxes",
        "tests/api/test_named_axes.py": "axis_size",
    },
    "numpy.linalg": {"tests/numpy/test_linalg.py": "eig eigh eigvals qr svd"},
}


def is_function(x: Any) -> bool:
    """Whether it is a function; dtypes and other types are the matter of tests/test_types.py."""
    is_type = isinstance(x, type) or hasattr(x, "dtype") or hasattr(x, "__origin__")
    return callable(x) and not is_type


@pytest.mark.parametrize("module", TABLES)
def test_every_function_is_compared(module: str) -> None:
    library, table = member(stax, module), TABLES[module]
    apart = {name: file for file, names in APART.get(module, {}).items() for name in names.split()}
    tabled = [getattr(library, name, None) for name in table]
    for name in library.__all__:
        function = getattr(library, name)
        if not is_function(function) or any(function is other for other in tabled):
            continue
        assert name in apart, f"{module}.{name} needs an entry in the tables of tests/facade"
        assert name in Path(apart[name]).read_text(), f"{apart[name]} does not test {name}"
    unknown = [n for n in (*table, *apart) if not hasattr(library, n)]
    assert not unknown, f"{module} has no {', '.join(unknown)}"
