"""Transforms of functions of pytrees, written once for JAX and for Stax, that nest in any order.

Each takes a library, a function `f(*args)` and a number that chooses a variant, and returns a
function of the same arguments; so any word over `TRANSFORMS` is a program.  `BASES` are functions
to start from, with their arguments.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

import stax

Function = Callable[..., Any]


def _ignore_jit(f: Function, static_argnames: Any = (), static_argnums: Any = ()) -> Function:
    return f


# JAX without its compiler: jit does not change what a function means, and compiling is slow.
eager_jax = types.SimpleNamespace(**{k: getattr(jax, k) for k in dir(jax) if k[0] != "_"})
eager_jax.jit = _ignore_jit


def is_float(x: Any) -> bool:
    """Say whether `x` has a derivative."""
    return hasattr(x, "dtype") and stax.dtypes.issubdtype(x.dtype, np.floating)


def floats(lib: Any, tree: Any) -> Any:
    """Return `tree` without its leaves that are not floating."""
    return lib.tree.map(lambda x: x if is_float(x) else None, tree)


def total(lib: Any, tree: Any) -> Any:
    """Return one number that depends on each floating element in its own way."""
    result = lib.numpy.zeros((), "float32")
    for leaf in lib.tree.leaves(tree):
        if is_float(leaf):
            weights = np.cos(np.arange(leaf.size)).astype(np.float32)
            result += lib.numpy.vdot(lib.numpy.ravel(leaf).astype("float32"), weights)
    return result


def head(lib: Any, tree: Any) -> Any:
    """Return the first elements of each floating leaf, which keeps Jacobians small."""
    return lib.tree.map(lambda x: lib.numpy.ravel(x)[:2], floats(lib, tree))


def argnums_of(args: Sequence[Any], variant: int) -> Any:
    """Return argnums in one of the forms that they have."""
    return (0, -1, (0,), tuple(range(len(args)))[::-1])[variant % 4]


def tangents_of(lib: Any, args: Any, variant: int) -> Any:
    """Return tangents: constants, or what depends on the point."""
    rules = (lib.numpy.ones_like, lib.numpy.cos, lambda x: 0.5 * x)
    return lib.tree.map(lambda x: rules[variant % 3](x).astype(x.dtype), args)


def cotangents_of(lib: Any, out: Any) -> Any:
    """Return cotangents for a result, float0 for its integers."""
    float0 = np.zeros((), jax.dtypes.float0).dtype
    return lib.tree.map(
        lambda y: lib.numpy.sin(y) + 1 if is_float(y) else np.zeros(y.shape, float0), out
    )


def assert_like(ours: Any, theirs: Any) -> None:
    """Compare two results, each a pytree of arrays."""
    left, structure = stax.tree.flatten(ours)
    right, expected = jax.tree.flatten(theirs)
    assert str(structure) == str(expected)
    for x, y in zip(left, right, strict=True):
        assert (x.dtype, x.shape) == (y.dtype, y.shape)
        if is_float(y):
            a, b = np.asarray(x, np.float64), np.asarray(y, np.float64)
            scale = max(1.0, np.abs(b).max(initial=0.0))
            epsilon = 2e-2 if y.dtype == np.float16 else 2e-4
            np.testing.assert_allclose(a / scale, b / scale, rtol=0, atol=epsilon)
        elif y.dtype != jax.dtypes.float0:
            np.testing.assert_array_equal(x, y)


# --- transforms ---


def grad(lib: Any, f: Function, variant: int) -> Function:
    def transformed(*args: Any) -> Any:
        argnums = argnums_of(args, variant)
        if variant % 3 == 1:
            loss = lambda *a: (total(lib, out := f(*a)), out)  # noqa: E731
            return lib.grad(loss, argnums, has_aux=True)(*args)
        if variant % 3 == 2:  # closes over what an outer transform follows
            closing = lambda x: total(lib, f(x, *args[1:])) * total(lib, args)  # noqa: E731
            return lib.grad(closing)(args[0])
        return lib.grad(lambda *a: total(lib, f(*a)), argnums)(*args)

    return transformed


def value_and_grad(lib: Any, f: Function, variant: int) -> Function:
    def transformed(*args: Any) -> Any:
        argnums = argnums_of(args, variant)
        if variant % 2:
            loss = lambda *a: (total(lib, out := f(*a)), {"aux": out})  # noqa: E731
            return lib.value_and_grad(loss, argnums, has_aux=True)(*args)
        return lib.value_and_grad(lambda *a: total(lib, f(*a)), argnums)(*args)

    return transformed


def jvp(lib: Any, f: Function, variant: int) -> Function:
    def transformed(*args: Any) -> Any:
        if variant % 4 == 3:
            first = tangents_of(lib, args[:1], variant)
            out, tangent = lib.jvp(lambda x: f(x, *args[1:]), args[:1], first)
        else:
            out, tangent = lib.jvp(f, args, tangents_of(lib, args, variant))
        return out, floats(lib, tangent)

    return transformed


def vjp(lib: Any, f: Function, variant: int) -> Function:
    def transformed(*args: Any) -> Any:
        if variant % 3 == 1:
            out, pull, aux = lib.vjp(lambda *a: (f(*a), a[0]), *args, has_aux=True)
            return pull(cotangents_of(lib, out)), aux
        out, pull = lib.vjp(f, *args)
        if variant % 3 == 2:
            zeros = lib.tree.map(lambda y: y * 0 if is_float(y) else y, cotangents_of(lib, out))
            return pull(cotangents_of(lib, out)), pull(zeros)
        return out, pull(cotangents_of(lib, out))

    return transformed


def linearize(lib: Any, f: Function, variant: int) -> Function:
    def transformed(*args: Any) -> Any:
        out, push = lib.linearize(f, *args)
        if variant % 2:
            several = [tangents_of(lib, args, k) for k in (0, 1)]
            both = lib.tree.map(lambda *t: lib.numpy.stack(t), *several)
            return lib.vmap(lambda *t: floats(lib, push(*t)))(*both)
        return out, floats(lib, push(*tangents_of(lib, args, variant)))

    return transformed


def vmap(lib: Any, f: Function, variant: int) -> Function:
    def stacked(tree: Any, axis: int) -> Any:
        return lib.tree.map(lambda x: lib.numpy.stack([x, 0.5 * x], axis).astype(x.dtype), tree)

    def transformed(*args: Any) -> Any:
        rest = (None,) * (len(args) - 1)
        match variant % 7:
            case 0:
                return lib.vmap(f)(*stacked(args, 0))
            case 1:
                return lib.vmap(f, in_axes=-1, out_axes=-1)(*stacked(args, -1))
            case 2:
                return lib.vmap(f, in_axes=(0, *rest))(stacked(args[0], 0), *args[1:])
            case 3:  # an axis for each leaf of the first argument
                leaves, treedef = lib.tree.flatten(args[0])
                axes = [(0, -1, None)[i % 3] for i in range(len(leaves))]
                mapped = [
                    x if a is None else stacked(x, a) for x, a in zip(leaves, axes, strict=True)
                ]
                in_axes = (treedef.unflatten(axes), *rest)
                return lib.vmap(f, in_axes)(treedef.unflatten(mapped), *args[1:])
            case 4:
                return lib.vmap(f, in_axes=None, out_axes=0, axis_size=2)(*args)
            case 5:  # closes over the other arguments, and is mapped twice
                inner = lambda x: lib.vmap(lambda y: f(y, *args[1:]))(x)  # noqa: E731
                return lib.vmap(inner)(stacked(stacked(args[0], 0), 0))
            case _:  # an axis for each part of the result
                both = lambda *a: (a[0], f(*a))  # noqa: E731
                return lib.vmap(both, in_axes=(0, *rest), out_axes=(-1, 0))(
                    stacked(args[0], 0), *args[1:]
                )

    return transformed


def jit(lib: Any, f: Function, variant: int) -> Function:
    if variant % 3 == 1:
        chosen = lambda *a, twice: f(*a) if not twice else (f(*a), f(*a))  # noqa: E731
        jitted = lib.jit(chosen, static_argnames="twice")
        return lambda *args: jitted(*args, twice=variant % 2 == 0)
    if variant % 3 == 2:
        numbered = lib.jit(lambda n, *a: f(*a), static_argnums=(0,))
        return lambda *args: numbered(variant, *args)
    return lib.jit(f)


def jacfwd(lib: Any, f: Function, variant: int) -> Function:
    def transformed(*args: Any) -> Any:
        argnums = argnums_of(args, variant)
        return lib.jacfwd(lambda *a: head(lib, f(*a)), argnums)(*args)

    return transformed


def jacrev(lib: Any, f: Function, variant: int) -> Function:
    def transformed(*args: Any) -> Any:
        argnums = argnums_of(args, variant)
        if variant % 3 == 2:
            return lib.jacrev(lambda *a: (head(lib, f(*a)), a), argnums, has_aux=True)(*args)
        return lib.jacrev(lambda *a: head(lib, f(*a)), argnums)(*args)

    return transformed


def hessian(lib: Any, f: Function, variant: int) -> Function:
    return lambda *args: lib.hessian(
        lambda *a: total(lib, lib.tree.map(lib.numpy.tanh, floats(lib, f(*a)))),
        argnums_of(args, variant),
    )(*args)


TRANSFORMS: dict[str, Callable[[Any, Function, int], Function]] = {
    "grad": grad, "value_and_grad": value_and_grad, "jvp": jvp, "vjp": vjp,
    "linearize": linearize, "vmap": vmap, "jit": jit, "jacfwd": jacfwd, "jacrev": jacrev,
    "hessian": hessian,
}  # fmt: skip
# Those that multiply the size of what they are applied to.
LARGE = ("jacfwd", "jacrev", "hessian")


def nest(
    lib: Any, base: str | Function, word: Sequence[tuple[str, int]], transforms: Any = TRANSFORMS
) -> Function:
    """Return a base function, by its name perhaps, under transforms, innermost first."""
    first = BASES[base][0] if isinstance(base, str) else base
    f: Function = lambda *args: first(lib, *args)  # noqa: E731
    for name, variant in word:
        f = transforms[name](lib, f, variant)
    return f


# --- functions to start from ---


def _layer(lib: Any, p: Any, x: Any) -> Any:
    return {"y": lib.numpy.tanh(x @ p["w"] + p["b"]), "norm": lib.numpy.sum(p["b"] ** 2)}


def _tree(lib: Any, parts: Any, scale: Any) -> Any:
    a, (b, c) = parts
    return a * b + scale, [c - scale * a, None]


def _pick(lib: Any, x: Any) -> Any:
    best = lib.numpy.argmax(x)
    return {"best": best, "there": x[best] * x, "order": lib.numpy.sort(x)[::-1]}


def _closure(lib: Any, x: Any, y: Any) -> Any:
    slope = lib.grad(lambda z: lib.numpy.sum(lib.numpy.sin(z) * x))(y)
    return x * slope


def _masked(lib: Any, x: Any, y: Any) -> Any:
    return lib.numpy.where(x > y, x * x * y, lib.numpy.sin(x)), lib.numpy.maximum(x, y)


def _update(lib: Any, x: Any, y: Any) -> Any:
    i = lib.numpy.array([2, 0], "int32")
    return lib.numpy.asarray(x).at[i].add(y[:2]), lib.lax.dynamic_slice_in_dim(x * y, i[1], 2)


def numbers(*shape: int) -> np.ndarray:
    count = int(np.prod(shape))
    return (np.sin(np.arange(1, count + 1) * 1.3) * 0.8).astype(np.float32).reshape(shape)


_V, _W = numbers(3), numbers(4)[1:]
BASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "scalar": (lambda lib, x: x * lib.numpy.sin(x), (np.float32(0.7),)),
    "product": (lambda lib, x, y: lib.numpy.tanh(x) * y, (_V, _W)),
    "layer": (_layer, ({"w": numbers(2, 3), "b": _V}, numbers(2))),
    "tree": (_tree, ([_V, (_W, _V[:1])], np.float32(0.3))),
    "softmax": (lambda lib, x: lib.nn.softmax(x), (_V,)),
    "pick": (_pick, (_V,)),
    "closure": (_closure, (_V, _W)),
    "masked": (_masked, (_V, _W)),
    "gram": (lambda lib, x: lib.numpy.exp(-(x @ x.T)), (numbers(2, 2),)),
    "update": (_update, (_V, _W)),
    "scan": (lambda lib, x: (lib.numpy.cumsum(x), lib.numpy.prod(x)), (_V,)),
    "logsumexp": (lambda lib, x: lib.nn.logsumexp(x, axis=0) + 2 * x, (_V,)),
    "half": (lambda lib, x, y: (x * y, lib.numpy.cos(y)), (_V, _W.astype(np.float16))),
    "index": (lambda lib, x: x[lib.numpy.array([2, 0])] * x[-1] ** 3, (_V,)),
    "rows": (
        lambda lib, x: (x - lib.numpy.mean(x, 1, keepdims=True)) / lib.numpy.std(x, 1)[:, None],
        (numbers(2, 3),),
    ),
}
