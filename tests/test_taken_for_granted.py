"""What users of JAX take for granted, item by item, beside the tests of each module."""

import collections
import copy
import functools
import inspect
import os
import pickle
import subprocess
import sys
import threading
import time
from typing import Any

import cloudpickle
import jax
import numpy as np
import pytest

import stax
import stax.numpy as snp
from stax import tree_util
from stax.errors import (
    ArgumentValueError,
    ConcretizationTypeError,
    TracerIntegerConversionError,
    UnsupportedError,
)

X = np.arange(3, dtype=np.float32)


# --- arrays and devices ---


def test_traced_arrays_are_arrays() -> None:
    seen = []
    stax.jit(lambda x: seen.append(isinstance(x, stax.Array)) or x)(X)
    stax.vmap(lambda x: seen.append(isinstance(x, snp.ndarray)) or x)(X)
    assert seen == [True, True]


def test_clear_caches() -> None:
    f = stax.jit(lambda x: x + 1)
    f(X)
    assert len(f.variants()) == 1
    stax.clear_caches()
    assert f.variants() == [] and f(X).tolist() == [1, 2, 3]


# --- jit ---


class Scaled:
    def __init__(self, factor: float) -> None:
        self.factor = factor

    @functools.partial(stax.jit, static_argnums=0)
    def times(self, x: Any, *, offset: float = 0.0) -> Any:
        """Scale."""
        return x * self.factor + offset

    @staticmethod
    @stax.jit
    def twice(x: Any) -> Any:
        return x * 2


def module_function(x: Any, y: Any = 1.0) -> Any:
    """Multiply."""
    return x * y


jitted = stax.jit(module_function)


def test_jit_keeps_what_a_function_is() -> None:
    assert inspect.signature(jitted) == inspect.signature(module_function)
    assert (jitted.__name__, jitted.__doc__) == ("module_function", "Multiply.")
    assert jitted.__wrapped__ is module_function and jitted.__module__ == __name__
    assert Scaled.times.__name__ == "times" and "offset" in str(inspect.signature(Scaled.times))
    for transform in (stax.grad, stax.vmap, stax.value_and_grad, stax.jacfwd, stax.make_graph):
        assert transform(module_function).__name__ == "module_function"


def test_methods_partials_callables_and_keywords() -> None:
    assert Scaled(3.0).times(X, offset=1.0).tolist() == [1, 4, 7]
    assert Scaled.twice(X).tolist() == Scaled(1.0).twice(X).tolist() == [0, 2, 4]
    assert stax.jit(Scaled(2.0).times)(X).tolist() == [0, 2, 4]
    assert stax.jit(functools.partial(module_function, y=3.0))(X).tolist() == [0, 3, 6]
    assert stax.jit(tree_util.Partial(module_function, 2.0))(X).tolist() == [0, 2, 4]
    assert jitted(y=2.0, x=X).tolist() == [0, 2, 4]


@pytest.mark.parametrize("dumps", [pickle.dumps, cloudpickle.dumps])
def test_jitted_functions_are_pickled_by_their_function(dumps: Any) -> None:
    again = pickle.loads(dumps(jitted))
    assert again(X, 2.0).tolist() == [0, 2, 4]
    with_static = pickle.loads(dumps(stax.jit(module_function, static_argnums=1)))
    assert with_static(X, 3.0).tolist() == [0, 3, 6]
    assert copy.deepcopy(jitted)(X).tolist() == [0, 1, 2]


def test_lambdas_are_pickled_by_cloudpickle() -> None:
    factor = snp.asarray(3.0)
    again = pickle.loads(cloudpickle.dumps(stax.jit(lambda x: x * factor)))
    assert again(X).tolist() == [0, 3, 6]


@pytest.mark.parametrize("transform", [
    stax.jit, stax.grad, stax.value_and_grad, stax.vmap, stax.jacfwd, stax.jacrev, stax.hessian,
    stax.make_graph, stax.eval_shape, stax.linearize, stax.vjp, stax.linear_transpose,
    lambda f: stax.jvp(f, (1.0,), (1.0,)),
])  # fmt: skip
def test_what_is_no_function_is_refused_at_once(transform: Any) -> None:
    for value in (3, snp.ones(2), None):
        if transform is stax.jit and value is None:
            continue  # jit(None, ...) is the decorator with options
        with pytest.raises(TypeError, match="is not callable"):
            transform(value)


def test_static_variants_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stax.api.compiled.MOST_VARIANTS", 8)
    f = stax.jit(lambda x, n: x + n, static_argnums=1)
    for n in range(20):
        assert f(X, n).tolist() == [n, n + 1, n + 2]
    assert len(f.variants()) <= 8
    assert f(X, 0).tolist() == [0, 1, 2]


def test_an_array_is_donated_once() -> None:
    f = stax.jit(lambda x, y: x + y, donate_argnums=(0, 1))
    g = stax.jit(lambda x, y: x + y, donate_argnums=0)
    for function in (f, g):
        x = snp.ones(3)
        for _ in range(2):
            with pytest.raises(ArgumentValueError, match="is given twice"):
                function(x, x)
        assert not x.is_deleted()
        assert function(x, snp.ones(3)).tolist() == [2, 2, 2] and x.is_deleted()
        with pytest.raises(RuntimeError, match="deleted or donated"):
            function(x, snp.ones(3))


def test_arguments_that_take_the_way_over_leaves() -> None:
    """Numbers, NumPy arrays, pytrees, keywords and static arguments, called again and again."""
    f = stax.jit(lambda p, k=2, *, s: {"out": p["x"] * k + s}, static_argnames="s")
    for p in ({"x": X}, {"x": snp.asarray(X)}, {"x": X[::-1]}, {"x": 2.0}):
        for s in (1, 2):
            for k in (2, 2.5, np.float32(3), np.int64(4)):
                wanted = np.asarray(p["x"]) * k + s
                for _ in range(2):
                    np.testing.assert_allclose(f(p, k, s=s)["out"], wanted)
    read_only = X.copy()
    read_only.setflags(write=False)
    assert f({"x": read_only}, s=0)["out"].tolist() == [0, 2, 4]
    assert X.flags.writeable


def test_results_do_not_lie_in_the_memory_of_numpy_arguments() -> None:
    f = stax.jit(lambda x: (x, {"a": x}))
    for _ in range(3):
        source = X.copy()
        first, second = f(source)
        source[:] = 9
        assert first.tolist() == second["a"].tolist() == [0, 1, 2]


def test_transforms_nest_deeper_than_python_calls() -> None:
    def nested(count: int) -> Any:
        f = module_function
        for _ in range(count):
            f = stax.jit(lambda x, g=f: g(x))
        return f

    before = sys.getrecursionlimit()
    assert float(nested(200)(2.0)) == 2
    assert sys.getrecursionlimit() == before


# --- pytrees ---


def test_linear_maps_pass_through_jit() -> None:
    y, pull = stax.vjp(lambda x: snp.sin(x) * x, X)
    _, push = stax.linearize(lambda x: snp.sin(x) * x, X)
    for f in (pull, push):
        assert isinstance(f, tree_util.Partial)
        applied = stax.jit(lambda f, t: f(t))(f, y)
        wanted = f(y)
        for a, b in zip(stax.tree.leaves(applied), stax.tree.leaves(wanted), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6)
    (ct,) = stax.jit(lambda x: stax.vjp(snp.sin, x)[1])(X)(np.ones(3, np.float32))
    np.testing.assert_allclose(ct, np.cos(X), rtol=1e-6)


def test_deques_and_struct_sequences_are_leaves() -> None:
    for value in (collections.deque([1, 2]), time.gmtime(0), os.stat(".")):
        assert stax.tree.leaves(value) == [value] == jax.tree.leaves(value)
        assert stax.tree.map(lambda x: type(x), [value]) == [type(value)]


def test_a_module_of_another_library_is_a_pytree() -> None:
    """As modules of flax and equinox are: registered with JAX only, and used in our transforms."""

    @jax.tree_util.register_pytree_node_class
    class Linear:
        def __init__(self, weight: Any, bias: Any) -> None:
            self.weight, self.bias = weight, bias

        def __call__(self, x: Any) -> Any:
            return x @ self.weight + self.bias

        def tree_flatten(self) -> Any:
            return (self.weight, self.bias), None

        @classmethod
        def tree_unflatten(cls, data: Any, children: Any) -> Any:
            return cls(*children)

    model = Linear(np.eye(3, dtype=np.float32), np.zeros(3, np.float32))
    gradient = stax.jit(stax.grad(lambda m, x: (m(x) ** 2).sum()))(model, X)
    assert type(gradient) is Linear and gradient.bias.tolist() == [0, 2, 4]
    assert stax.vmap(lambda m, x: m(x), in_axes=(None, 0))(model, np.stack([X, X])).shape == (2, 3)


def test_dataclasses_and_static_classes() -> None:
    @functools.partial(tree_util.register_dataclass, data_fields=["x"], meta_fields=["n"])
    class Pair:
        def __init__(self, x: Any, n: int) -> None:
            self.x, self.n = x, n

    @tree_util.register_static
    class Mode(str):
        pass

    f = stax.jit(lambda p, mode: p.x * p.n if mode == "times" else p.x + p.n)
    assert f(Pair(X, 3), Mode("times")).tolist() == [0, 3, 6]
    assert f(Pair(X, 3), Mode("plus")).tolist() == [3, 4, 5]
    [(path, _)] = tree_util.tree_leaves_with_path(Pair(X, 3))
    assert tree_util.keystr(path) == ".x"


# --- configuration ---


def test_settings_are_contexts_and_take_names_of_jax() -> None:
    assert stax.config.jax_enable_x64 is False and stax.config.jax_debug_nans is False
    with stax.enable_x64():
        assert stax.config.jax_enable_x64
    for context in (stax.debug_nans(False), stax.log_compiles(), stax.checking_leaks()):
        with context:
            pass
    stax.config.update("jax_platforms", "cpu")
    stax.config.update("jax_log_compiles", False)


def test_settings_that_are_not_supported_say_so() -> None:
    context = stax.numpy_rank_promotion("raise")
    with pytest.raises(UnsupportedError, match="is not supported"), context:
        pass
    with pytest.raises(UnsupportedError, match="debug_key_reuse=True"):
        stax.config.update("jax_debug_key_reuse", True)
    with pytest.raises(ValueError, match="cannot be 'lax'"):
        stax.config.update("jax_numpy_dtype_promotion", "lax")


def test_an_update_gives_functions_their_native_calls_back() -> None:
    traced = []

    def f(x: Any, p: Any) -> Any:
        traced.append(1)
        return x + p["a"]

    function, x = stax.jit(f), snp.ones(2)
    for wide in (False, True, False):
        stax.config.update("enable_x64", wide)
        try:
            for _ in range(3):
                function(x, {"a": 1.0})
            assert function._specializer.usable and function._specializer.leaf_calls
        finally:
            stax.config.update("enable_x64", False)
    assert len(traced) == 2


def test_compile_time_evaluation() -> None:
    def f(x: Any) -> Any:
        with stax.ensure_compile_time_eval():
            known = snp.sin(snp.asarray(3.0))
            assert type(known) is stax.Array and known > 0
            mixed = jitted(x + known, 1.0) + stax.grad(snp.sin)(0.0) - 1.0
        return mixed * known

    np.testing.assert_allclose(stax.jit(f)(X), (X + np.sin(3)) * np.sin(3), rtol=1e-5)


def test_names_on_nodes() -> None:
    def inner(x: Any) -> Any:
        return snp.sin(x)

    def outer(x: Any) -> Any:
        with stax.named_scope("block"):
            return stax.named_call(inner)(x), stax.named_call(inner, name="layer")(x + 1)

    scopes = {node.scope for node in stax.make_graph(outer)(X).nodes}
    assert {("block", "inner"), ("block", "layer")} <= scopes
    assert stax.named_call(inner).__name__ == "inner"


def test_make_graph_takes_the_arguments_of_make_jaxpr() -> None:
    graph, shape = stax.make_jaxpr(lambda x, n: x * n, (1,), None, True)(X, 3)
    assert shape.shape == (3,) and len(graph.inputs) == 1
    graph = stax.make_jaxpr(lambda x: stax.lax.psum(x, "i"), axis_env=[("i", 2)])(1.0)
    assert "psum x  {axis_name=i, axis_size=2" in str(graph)


# --- derivatives ---


def weak(lib: Any, x: Any) -> Any:
    arrays = map(lib.numpy.asarray, stax.tree.leaves(x))  # JAX hands Python numbers on
    return [(y.dtype, y.weak_type) for y in arrays]


@pytest.mark.parametrize(("f", "x64"), [
    (lambda lib, x: lib.numpy.sin(x) * 2, False),
    (lambda lib, x: x * lib.numpy.ones(2, "float16"), False),
    (lambda lib, x: (x + 1, lib.numpy.float32(1) * x), True),
], ids=["sine", "half", "pair"])  # fmt: skip
def test_python_numbers_stay_weak_in_derivatives(f: Any, x64: bool) -> None:
    def results(lib: Any) -> Any:
        g = functools.partial(f, lib)
        out, pull = lib.vjp(g, 1.0)
        ones = lib.tree.map(lib.numpy.ones_like, out)
        pushed = lib.linearize(g, 1.0)[1](1.0)
        return lib.jvp(g, (1.0,), (1.0,)), out, pull(ones), pushed, lib.jacfwd(g)(1.0)

    with stax.enable_x64(x64), jax.enable_x64(x64):
        assert weak(stax, results(stax)) == weak(jax, results(jax))


@pytest.mark.parametrize("aux", ["text", 3, None, object(), {"f": len, "n": [1.5]}, np.arange(2)])
def test_auxiliary_data_may_be_anything(aux: Any) -> None:
    def f(x: Any) -> Any:
        return x**2, (aux, x)

    calls = (
        lambda lib: lib.grad(f, has_aux=True)(3.0)[1][0],
        lambda lib: lib.value_and_grad(f, has_aux=True)(3.0)[0][1][0],
        lambda lib: lib.jvp(f, (3.0,), (1.0,), has_aux=True)[2][0],
        lambda lib: lib.vjp(f, 3.0, has_aux=True)[2][0],
        lambda lib: lib.linearize(f, 3.0, has_aux=True)[2][0],
    )
    for call in calls:
        assert type(call(stax)) is type(call(jax)) is type(aux)
        assert stax.tree.leaves(call(stax)) == stax.tree.leaves(aux) or isinstance(aux, np.ndarray)
    inside = stax.jit(lambda x: stax.grad(f, has_aux=True)(x)[0] + 1)(3.0)
    assert float(inside) == 7


@pytest.mark.parametrize("name", ["relu", "relu6", "leaky_relu", "elu", "softplus", "swish"])
def test_derivatives_at_awkward_points(name: str) -> None:
    ours, theirs = getattr(stax.nn, name), getattr(jax.nn, name)
    for x in (np.nan, 0.0, -0.0, 6.0, np.inf):
        for f in (stax.grad(ours), stax.jit(stax.grad(ours))):
            np.testing.assert_allclose(f(x), jax.grad(theirs)(x), rtol=1e-6)


# --- errors ---

STATIC = {
    "reshape": lambda n: snp.ones(6).reshape(n, -1),
    "axis": lambda n: snp.ones((2, 2)).sum(axis=n),
    "axes": lambda n: snp.ones((2, 2)).mean(axis=(n,)),
    "expand_dims": lambda n: snp.expand_dims(snp.ones(2), n),
    "one_hot": lambda n: stax.nn.one_hot(snp.arange(3), n),
    "zeros": lambda n: snp.zeros((n, 2)),
    "top_k": lambda n: stax.lax.top_k(snp.ones(4), n),
    "nonzero": lambda n: snp.nonzero(snp.ones(3), size=n),
    "bincount": lambda n: snp.bincount(snp.arange(3), length=n),
    "histogram": lambda n: snp.histogram(snp.ones(3), bins=n),
    "argmax": lambda n: snp.argmax(snp.ones((3, 2)), axis=n),
    "range": lambda n: list(range(n)),
    "softmax": lambda n: stax.nn.softmax(snp.ones((3, 2)), axis=n),
}


@pytest.mark.parametrize("name", STATIC)
def test_traced_shapes_and_axes_name_the_way_out(name: str) -> None:
    with pytest.raises(TypeError, match="static_argnums") as caught:
        stax.jit(STATIC[name])(1)
    text = str(caught.value)
    assert "Proxy" not in text and "has no length" not in text
    assert stax.jit(STATIC[name], static_argnums=0)(1) is not None


def test_integers_that_are_known_may_be_shapes_and_axes() -> None:
    one = snp.asarray(1)
    assert snp.ones((2, 3)).sum(axis=one).shape == (2,) and snp.zeros(one).shape == (1,)
    mapped = stax.vmap(lambda x, n: x.sum(axis=n), in_axes=(0, None))(snp.ones((2, 3, 4)), 1)
    assert mapped.shape == (2, 3)


def test_formatting() -> None:
    assert f"{snp.asarray(2.5):.2f} {snp.asarray(3):03d}" == "2.50 003"
    shown = []
    stax.grad(lambda x: shown.append(f"{x:.2f}") or x)(2.5)
    assert shown == ["2.50"]
    with pytest.raises(ConcretizationTypeError, match="was formatted"):
        stax.jit(lambda x: f"{x:.2f}")(1.0)
    stax.jit(lambda x: shown.append(f"{x}") or x)(1.0)
    assert shown[-1] == "<traced f32[]~ in jit>"


def test_python_names_traced_arrays_in_its_own_errors() -> None:
    with pytest.raises(TypeError, match="TracedArray"):
        stax.jit(lambda x: x + "a")(1.0)
    with pytest.raises(TracerIntegerConversionError):
        stax.jit(lambda x: [0, 1][x])(1)


def test_the_hierarchy_of_errors_is_that_of_jax() -> None:
    for name in dir(jax.errors):
        theirs = getattr(jax.errors, name)
        if isinstance(theirs, type):
            ours = getattr(stax.errors, name)
            python = [c for c in theirs.__mro__ if c.__module__ == "builtins"]
            assert set(python) <= set(ours.__mro__)
            names = {c.__name__ for c in theirs.__mro__ if c.__module__ == "jax.errors"}
            assert names <= {c.__name__ for c in ours.__mro__}
    with stax.numpy_dtype_promotion("strict"), pytest.raises(stax.dtypes.TypePromotionError):
        snp.ones(3) + snp.ones(3, int)


# --- threads and the Python way ---


def test_two_threads_call_one_function() -> None:
    f, results = stax.jit(lambda x, k: {"a": x * k}), []
    threads = [
        threading.Thread(target=lambda k=k: results.append(f(X, k)["a"].tolist()))
        for k in (1.0, 2.0, 3.0, 4.0)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [[0, k, 2 * k] for k in (1, 2, 3, 4)]


def test_the_python_way_of_dispatch() -> None:
    """Free-threaded CPython takes it; here the variable asks for it."""
    program = (
        "import stax, stax.numpy as snp, numpy as np\n"
        "from stax.runtime.entry import PythonEntry\n"
        "f = stax.jit(lambda x, p: (x + p['a'], x))\n"
        "g = stax.jit(lambda x: x * 2)\n"
        "assert type(g._specializer.entry) is PythonEntry\n"
        "for _ in range(3):\n"
        "    y = g(snp.ones(3)), g(2.0), g(np.ones(2)), f(snp.ones(2), {'a': 1.0})\n"
        "print([float(z.sum()) for z in stax.tree.leaves(y)], stax.grad(g)(1.0))\n"
    )
    environment = {**os.environ, "STAX_NATIVE_CALLS": "0"}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment
    )
    assert done.stdout.strip() == "[6.0, 4.0, 4.0, 4.0, 2.0] 2.0", done.stderr
