"""Bad input of every kind: functions that raise, whose messages tests/test_errors.py pins."""

from collections.abc import Callable
from typing import Any

import numpy as np

import stax
import stax.numpy as snp
from stax import lax

CASES: dict[str, Callable[[], Any]] = {}
V3, V4, INTS, MATRIX = snp.ones(3), snp.ones(4), snp.arange(3), snp.ones((2, 3))


def case(function: Callable[[], Any]) -> Callable[[], Any]:
    """Register a function that raises."""
    CASES[function.__name__] = function
    return function


def add(a: Any, b: Any) -> Any:
    return a + b


# --- shapes and dtypes ---


@case
def add_eagerly() -> None:
    V3 + V4


@case
def add_in_jit() -> None:
    def total(x: Any, y: Any) -> Any:
        doubled = snp.sin(y) * 2
        return x + doubled

    stax.jit(total)(V3, V4)


@case
def add_in_grad_of_jit_of_vmap() -> None:
    @stax.jit
    def loss(x: Any, y: Any) -> Any:
        return stax.vmap(lambda row: (row + y).sum())(x).sum()

    stax.grad(loss)(MATRIX, V4)


@case
def add_a_numpy_array() -> None:
    stax.jit(lambda x: x + np.ones(4))(V3)


@case
def lax_add_of_two_dtypes() -> None:
    stax.jit(lambda x, y: lax.add(x, y))(V3, INTS)


@case
def matmul_eagerly() -> None:
    MATRIX @ snp.ones((4, 5))


@case
def matmul_in_jit() -> None:
    def layer(x: Any, w: Any) -> Any:
        return snp.tanh(x @ w)

    stax.jit(layer)(MATRIX, snp.ones((4, 5)))


@case
def dot_in_grad() -> None:
    def loss(w: Any) -> Any:
        h = snp.tanh(MATRIX)
        return snp.dot(h, w)

    stax.grad(loss)(V4)


@case
def einsum() -> None:
    snp.einsum("ij,jk->ik", MATRIX, MATRIX)


@case
def concatenate() -> None:
    stax.jit(lambda a, b: snp.concatenate([a, b]))(MATRIX, snp.ones((3, 4)))


@case
def concatenate_of_different_rank() -> None:
    snp.concatenate([MATRIX, V3])


@case
def stack() -> None:
    stax.vmap(lambda a, b: snp.stack([a, b]))(MATRIX, snp.ones((2, 4)))


@case
def broadcast_to() -> None:
    stax.jit(lambda a: snp.broadcast_to(a, (4, 2)))(V3)


@case
def broadcast_to_fewer_axes() -> None:
    snp.broadcast_to(MATRIX, (3,))


@case
def reshape() -> None:
    stax.jit(lambda a: a.reshape(2, 2))(V3)


@case
def reshape_open() -> None:
    V3.reshape(2, -1)


@case
def transpose() -> None:
    snp.transpose(MATRIX, (0, 0))


@case
def where() -> None:
    snp.where(V3 > 0, V3, V4)


@case
def axis_out_of_range() -> None:
    stax.jit(lambda a: a.sum(axis=2))(MATRIX)


@case
def axis_named_twice() -> None:
    snp.sum(MATRIX, axis=(0, -2))


@case
def squeeze() -> None:
    snp.squeeze(MATRIX, 0)


@case
def max_of_nothing() -> None:
    snp.max(snp.zeros(0))


@case
def dynamic_slice() -> None:
    lax.dynamic_slice(V3, (0,), (5,))


@case
def bits_of_floats() -> None:
    V3 & V3


@case
def negative_integer_power() -> None:
    INTS**-1


# --- what is no array ---


@case
def sin_of_a_string() -> None:
    snp.sin("a")


@case
def sin_of_a_list() -> None:
    snp.sin([1.0, 2.0])


@case
def add_a_list() -> None:
    V3 + [1, 2, 3]  # noqa: RUF005


@case
def add_an_object() -> None:
    stax.jit(lambda x: snp.add(x, {}))(V3)


@case
def array_of_a_string() -> None:
    snp.array("abc")


@case
def array_of_an_object() -> None:
    snp.array(object())


@case
def array_of_ragged_rows() -> None:
    snp.array([[1, 2], [3]])


@case
def a_string_dtype() -> None:
    V3.astype("U3")


@case
def jit_of_a_string() -> None:
    stax.jit(add)("abc", 1.0)


@case
def grad_of_an_object_inside_a_dict() -> None:
    stax.grad(lambda p: 0.0)({"w": [1.0, object()]})


@case
def a_string_is_returned() -> None:
    stax.jit(lambda x: "abc")(V3)


@case
def jit_of_a_number() -> None:
    stax.jit(3)


# --- a traced array after its trace ---


def _leak() -> Any:
    kept = []

    def keep(x: Any) -> Any:
        kept.append(x * 2)
        return x

    stax.jit(keep)(V3)
    return kept[0]


@case
def leaked_and_used_eagerly() -> None:
    _leak() + 1


@case
def leaked_into_another_trace() -> None:
    stax.jit(lambda x: x + _leak())(V3)


@case
def leaked_and_asked_for_its_truth() -> None:
    bool(_leak())


@case
def leaked_from_vmap_into_jit() -> None:
    def outside(x: Any) -> Any:
        kept: list[Any] = []
        stax.vmap(lambda row: kept.append(row))(x)
        return x + kept[0]

    stax.jit(outside)(MATRIX)


# --- values that tracing does not have ---


def relu(x: Any) -> Any:
    return x if x > 0 else 0 * x


@case
def truth_in_jit() -> None:
    def relu(x: Any) -> Any:
        if x > 0:
            return x
        return 0 * x

    stax.jit(relu)(1.0)


@case
def truth_in_vmap() -> None:
    stax.vmap(lambda x: x if x > 0 else 0 * x)(V3)


@case
def truth_in_grad_of_vmap() -> None:
    stax.grad(lambda v: stax.vmap(relu)(v).sum())(V3)


@case
def truth_in_jit_of_grad() -> None:
    stax.jit(stax.grad(relu))(1.0)


@case
def int_of_traced() -> None:
    stax.jit(lambda n: int(n))(3)


@case
def float_of_traced() -> None:
    stax.jit(lambda x: float(x))(3.0)


@case
def item_of_traced() -> None:
    stax.jit(lambda x: x.item())(3.0)


@case
def range_of_traced() -> None:
    stax.jit(lambda n: list(range(n)))(3)


@case
def shape_of_traced() -> None:
    stax.jit(lambda n: snp.zeros((n, 2)))(3)


@case
def asarray_of_traced() -> None:
    stax.jit(lambda x: np.asarray(x))(V3)


@case
def numpy_function_of_traced() -> None:
    stax.jit(lambda x: np.sin(x))(V3)


@case
def numpy_function_of_mapped() -> None:
    stax.vmap(lambda x: np.linalg.norm(x))(MATRIX)


@case
def mask_in_jit() -> None:
    stax.jit(lambda x: x[x > 0])(V3)


@case
def slice_to_traced() -> None:
    stax.jit(lambda x, n: x[:n])(V3, 2)


@case
def hash_of_traced() -> None:
    stax.jit(lambda x: {x: 1})(V3)


# --- transforms ---


@case
def grad_of_a_vector() -> None:
    def loss(w: Any) -> Any:
        return w * 2

    stax.grad(loss)(V3)


@case
def grad_of_a_pair() -> None:
    stax.grad(lambda w: (w, w))(1.0)


@case
def grad_by_an_integer() -> None:
    def loss(w: Any, n: Any) -> Any:
        return w * n

    stax.grad(loss, argnums=1)(2.0, 3)


@case
def grad_of_an_integer() -> None:
    stax.grad(lambda w: snp.argmax(w))(V3)


@case
def grad_by_a_complex() -> None:
    stax.grad(lambda w: w)(1j)


@case
def grad_argnums() -> None:
    stax.grad(add, argnums=2)(1.0, 2.0)


@case
def grad_without_aux() -> None:
    stax.grad(lambda w: w, has_aux=True)(1.0)


@case
def unhashable_static_argument() -> None:
    stax.jit(add, static_argnums=1)(1.0, [1])


@case
def jvp_structure() -> None:
    stax.jvp(add, (V3, V3), (V3,))


@case
def jvp_shape() -> None:
    stax.jvp(add, (V3, V3), (V3, V4))


@case
def jvp_dtype() -> None:
    stax.jvp(snp.sin, (V3,), (INTS,))


@case
def jvp_without_tuples() -> None:
    stax.jvp(snp.sin, V3, V3)


@case
def vjp_structure() -> None:
    _, pull = stax.vjp(snp.sin, V3)
    pull((V3, V3))


@case
def vjp_shape() -> None:
    _, pull = stax.vjp(snp.sin, V3)
    pull(V4)


@case
def linearize_shape() -> None:
    _, push = stax.linearize(snp.sin, V3)
    push(V4)


@case
def vmap_sizes() -> None:
    stax.vmap(add)(V3, V4)


@case
def vmap_in_axes_too_few() -> None:
    stax.vmap(add, in_axes=(0,))(V3, V3)


@case
def vmap_in_axes_out_of_range() -> None:
    stax.vmap(add, in_axes=(0, 2))(MATRIX, MATRIX)


@case
def vmap_in_axes_of_another_structure() -> None:
    stax.vmap(lambda d: d["a"], in_axes=({"b": 0},))({"a": 1.0})


@case
def vmap_in_axes_of_a_scalar() -> None:
    stax.vmap(add)(V3, 1.0)


@case
def vmap_of_nothing() -> None:
    stax.vmap(add, in_axes=None)(V3, V3)


@case
def vmap_out_axes_none() -> None:
    stax.vmap(add, out_axes=None)(V3, V3)


@case
def vmap_out_axes_out_of_range() -> None:
    stax.vmap(add, out_axes=3)(V3, V3)


# --- arrays that do not change, and that are gone ---


@case
def assignment() -> None:
    x = snp.ones(3)
    x[0] = 2.0


@case
def assignment_in_jit() -> None:
    def f(x: Any) -> Any:
        x[0] = 2.0
        return x

    stax.jit(f)(V3)


@case
def a_donated_array_is_used() -> None:
    x = snp.ones(5)
    stax.jit(lambda a: a + 1, donate_argnums=0)(x)
    x + 1


@case
def a_donated_array_is_donated_again() -> None:
    f, x = stax.jit(lambda a: a + 1, donate_argnums=0), snp.ones(5)
    f(x)
    f(x)


@case
def truth_of_many() -> None:
    bool(V3)


@case
def too_many_indices() -> None:
    V3[0, 0]


@case
def a_float_index() -> None:
    V3[0.5]


@case
def iteration_over_a_scalar() -> None:
    list(snp.array(1.0))


@case
def item_of_many() -> None:
    V3.item()


# --- named axes, rules for vmap ---


@case
def an_axis_name_that_is_not_bound() -> None:
    def f(row: Any) -> Any:
        return lax.psum(row, "rows")

    stax.vmap(stax.vmap(f, axis_name="columns"))(MATRIX)


@case
def an_exchange_of_another_length() -> None:
    stax.vmap(lambda row: lax.all_to_all(row, "i", 0, 0), axis_name="i")(MATRIX)


@case
def a_rule_for_vmap_returns_another_tree() -> None:
    f = stax.custom_batching.custom_vmap(lambda x: {"y": x})
    f.def_vmap(lambda axis_size, in_batched, x: (x, True))
    stax.vmap(f)(V3)


# --- rules for derivatives ---


def with_backward(backward: Callable[..., Any]) -> Callable[..., Any]:
    f = stax.custom_vjp(lambda x: {"y": x * 2})
    f.defvjp(lambda x: (f(x), x), backward)
    return stax.grad(lambda x: f(x)["y"].sum())


@case
def a_rule_returns_a_cotangent_of_another_dtype() -> None:
    def backward(kept: Any, ct: Any) -> Any:
        return (ct["y"].astype("float16"),)

    with_backward(backward)(V3)


@case
def a_rule_returns_two_cotangents_for_one_argument() -> None:
    def backward(kept: Any, ct: Any) -> Any:
        return ct["y"], None

    with_backward(backward)(V3)


@case
def a_rule_for_tangents_returns_another_tree() -> None:
    @stax.custom_jvp
    def f(x: Any) -> Any:
        return {"y": x}

    @f.defjvp
    def f_jvp(primals: Any, tangents: Any) -> Any:
        return f(*primals), tangents[0]

    stax.jvp(f, (V3,), (V3,))


@case
def a_function_with_a_rule_closes_over_what_is_differentiated() -> None:
    def outer(x: Any) -> Any:
        inner = stax.custom_jvp(lambda y: y * x)
        inner.defjvps(lambda t, out, y: t)
        return inner(2.0 * x)

    stax.grad(outer)(3.0)


@case
def a_solution_of_another_shape() -> None:
    lax.custom_linear_solve(lambda x: x, V3, lambda matvec, b: b[:2])


@case
def a_derivative_that_is_wrong() -> None:
    f = stax.custom_jvp(lambda x: snp.sin(x))
    f.defjvps(lambda t, y, x: 2 * t)
    stax.test_util.check_grads(f, (V3,), order=1)


# --- callbacks, checks and values that are not numbers ---

F32 = stax.ShapeDtypeStruct((), np.float32)


@case
def print_without_a_hole() -> None:
    stax.jit(lambda x: stax.debug.print(f"x is {x}", x=x))(V3)


@case
def callback_without_a_function() -> None:
    stax.jit(lambda x: stax.debug.callback(x, x))(V3)


@case
def callback_that_returns_another_shape() -> None:
    def f(x: Any) -> Any:
        return stax.pure_callback(lambda x: np.ones(3, np.float32), F32, x) * 2

    stax.jit(f)(V3)


@case
def callback_that_is_differentiated() -> None:
    def f(x: Any) -> Any:
        y = snp.sin(x)
        return stax.pure_callback(np.cos, F32, y)

    stax.grad(f)(1.0)


@case
def callback_without_a_method_for_vmap() -> None:
    stax.vmap(lambda x: stax.pure_callback(np.cos, F32, x))(V3)


@case
def ordered_callback_under_vmap() -> None:
    f = stax.experimental.io_callback
    stax.vmap(lambda x: f(np.cos, F32, x, ordered=True))(V3)


@case
def results_of_64_bits() -> None:
    stax.pure_callback(np.cos, stax.ShapeDtypeStruct((), np.float64), 1.0)


@case
def effect_with_a_result_under_checkpoint() -> None:
    @stax.checkpoint
    def f(x: Any) -> Any:
        return snp.sin(x) * stax.experimental.io_callback(np.cos, F32, 1.0)

    stax.grad(f)(1.0)


@case
def check_of_an_array() -> None:
    stax.jit(lambda x: stax.experimental.checkify.check(x > 0, "no"))(V3)


@case
def check_that_shows_a_number() -> None:
    stax.jit(lambda x: stax.experimental.checkify.check(x[0] > 0, "{}", 3))(V3)


@case
def nan_eagerly() -> None:
    with stax.debug_nans():
        snp.log(V3 - 2)


@case
def nan_in_jit() -> None:
    def f(x: Any) -> Any:
        y = snp.log(x - 2)
        return y * 2 + 1

    with stax.debug_nans():
        stax.jit(f)(V3)


@case
def nan_in_a_loop() -> None:
    def f(x: Any) -> Any:
        def step(c: Any, a: Any) -> Any:
            return snp.sqrt(c - a), None

        return lax.scan(step, x[0], x)[0]

    with stax.debug_nans():
        stax.jit(f)(V3)


@case
def nan_that_came_in() -> None:
    with stax.debug_nans():
        stax.jit(lambda x: x * 2)(np.full(3, np.nan))


# --- lowering ---


@case
def library_call_of_a_dynamic_length() -> None:
    square = snp.eye(3)
    stax.jit(snp.linalg.cholesky, dynamic={"a": {0: "n", 1: "n"}})(square)


@case
def value_of_a_dynamic_length() -> None:
    stax.jit(lambda x: [1, 2][x.shape[0]], dynamic={"x": {0: "n"}})(V3)
