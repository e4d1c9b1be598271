"""Control flow and custom rules around functions of pytrees, written once for JAX and for Stax.

As in `nestings`, each takes a library, a function `f(*args)` and a number that chooses a variant,
and returns a function of the same arguments.  Where JAX has no derivative its side says the same in
another way: a loop whose steps are not known is a scan over as many steps as there may be, of which
those that are too many do nothing; a rule for cotangents is the rule for tangents that it is the
transpose of.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import stax
from tests.nestings import BASES, TRANSFORMS, Function, eager_jax, is_float, numbers, total

STEPS = 4  # of a loop, at most


def moved(lib: Any, args: Any, out: Any) -> Any:
    """Return arguments of the same types that depend on what a function made of `args`."""
    push = lib.numpy.tanh(total(lib, out))
    return lib.tree.map(lambda x: (0.5 * x + 0.2 * push).astype(x.dtype), args)


def scaled(lib: Any, args: Any, factor: Any) -> Any:
    """Return arguments of the same types, multiplied by a number."""
    return lib.tree.map(lambda x: (x * factor).astype(x.dtype), args)


def _every(lib: Any, variant: int) -> dict[str, int]:
    """Return how often carries are kept, which is a matter of memory alone."""
    return {"checkpoint_every": 1 + variant % 3} if lib is stax and variant % 4 == 3 else {}


def scan(lib: Any, f: Function, variant: int) -> Function:
    more = _every(lib, variant)

    def over_elements(*args: Any) -> Any:
        def step(carry: Any, x: Any) -> Any:
            out = f(*x)
            return carry + lib.numpy.sin(total(lib, out)), out

        xs = [scaled(lib, args, np.float32(s)) for s in (1.0, 0.5, -0.3)]
        stacked = lib.tree.map(lambda *x: lib.numpy.stack(x), *xs)
        return lib.lax.scan(step, np.float32(0), stacked, reverse=variant % 2 == 1, **more)

    def of_carry(*args: Any) -> Any:
        def step(carry: Any, _: None) -> Any:
            out = f(*carry)
            return moved(lib, carry, out), total(lib, out)

        return lib.lax.scan(step, args, None, length=3, **more)

    def closing(*args: Any) -> Any:
        def step(carry: Any, s: Any) -> Any:
            return lib.numpy.sin(carry) + total(lib, f(*scaled(lib, args, s))), carry * s

        return lib.lax.scan(step, np.float32(1), np.array([0.5, 1.0], np.float32), **more)

    return (over_elements, of_carry, closing)[variant % 3]


def fori_loop(lib: Any, f: Function, variant: int) -> Function:
    def transformed(*args: Any) -> Any:
        def step(i: Any, carry: Any) -> Any:
            return moved(lib, carry, f(*scaled(lib, carry, lib.numpy.cos(i * 0.5))))

        upper: Any = 3
        if variant % 2:
            upper = 2 + lib.numpy.int32(total(lib, args) > 0)
        return lib.lax.fori_loop(0, upper, step, args, **_every(lib, variant))

    return transformed


def while_loop(lib: Any, f: Function, variant: int) -> Function:
    def transformed(*args: Any) -> Any:
        def goes_on(carry: Any) -> Any:
            i, values = carry
            return (i < STEPS - variant % 2) & (total(lib, values) ** 2 < (9.0, 0.3)[variant % 2])

        def step(carry: Any) -> Any:
            i, values = carry
            return i + 1, moved(lib, values, f(*values))

        return lib.lax.while_loop(goes_on, step, (np.int32(0), args), **_every(lib, variant))

    return transformed


def cond(lib: Any, f: Function, variant: int) -> Function:
    def transformed(*args: Any) -> Any:
        halved = lambda *a: f(*scaled(lib, a, 0.5))  # noqa: E731
        positive = total(lib, args[:1]) > 0.2
        if variant % 3 == 1:
            return lib.lax.cond(positive, lambda: f(*args), lambda: halved(*args))
        if variant % 3 == 2:
            kind = lib.numpy.int32(total(lib, args) * 2)
            root = lambda *a: f(*lib.tree.map(lambda x: lib.numpy.sqrt(x * x + 1), a))  # noqa: E731
            return lib.lax.switch(kind, [f, root, halved], *args)
        return lib.lax.cond(positive, f, halved, *args)

    return transformed


def checkpoint(lib: Any, f: Function, variant: int) -> Function:
    policies = (None, "dots_saveable", "everything_saveable", "nothing_saveable")
    name = policies[variant % 4]
    policy = None if name is None else getattr(lib.checkpoint_policies, name)
    return lib.checkpoint(f, policy=policy, prevent_cse=variant % 2 == 0)


def _doubled(lib: Any, tangent: Any, variant: int) -> Any:
    """Return tangents or cotangents, doubled in some variants: a rule may say what it wants."""
    factor = 1 + variant % 2
    return lib.tree.map(lambda t: (t * factor).astype(t.dtype) if is_float(t) else t, tangent)


def custom_jvp(lib: Any, f: Function, variant: int) -> Function:
    def transformed(*args: Any) -> Any:
        ruled = lib.custom_jvp(lambda *a: f(*a))

        @ruled.defjvp
        def rule(primals: Any, tangents: Any) -> Any:
            out, dot = lib.jvp(f, primals, tangents)
            return out, _doubled(lib, dot, variant)

        return ruled(*args)

    return transformed


def custom_vjp(lib: Any, f: Function, variant: int) -> Function:
    if lib is not stax:
        return custom_jvp(lib, f, variant)

    def transformed(*args: Any) -> Any:
        ruled = stax.custom_vjp(lambda *a: f(*a))

        def backward(primals: Any, ct: Any) -> Any:
            return stax.vjp(f, *primals)[1](_doubled(stax, ct, variant))

        ruled.defvjp(lambda *a: (f(*a), a), backward)
        return ruled(*args)

    return transformed


def chunked(lib: Any, f: Function, variant: int) -> Function:
    more = {"chunk": 1 + variant % 3} if lib is stax else {}

    def transformed(*args: Any) -> Any:
        xs = [scaled(lib, args[0], np.float32(s)) for s in (1.0, -0.5, 0.2)]
        stacked = lib.tree.map(lambda *x: lib.numpy.stack(x), *xs)
        axes = (0, *[None] * (len(args) - 1))
        return lib.vmap(f, in_axes=axes, out_axes=-(variant % 2), **more)(stacked, *args[1:])

    return transformed


def mapped(lib: Any, f: Function, variant: int) -> Function:
    def transformed(*args: Any) -> Any:
        xs = [scaled(lib, args[0], np.float32(s)) for s in (1.0, -0.5, 0.2)]
        stacked = lib.tree.map(lambda *x: lib.numpy.stack(x), *xs)
        size = (None, 2)[variant % 2]
        return lib.lax.map(lambda x: f(x, *args[1:]), stacked, batch_size=size)

    return transformed


CONTROL: dict[str, Callable[[Any, Function, int], Function]] = {
    "scan": scan, "fori_loop": fori_loop, "while_loop": while_loop, "cond": cond,
    "checkpoint": checkpoint, "custom_jvp": custom_jvp, "custom_vjp": custom_vjp,
    "chunked": chunked, "map": mapped,
}  # fmt: skip
EVERY = TRANSFORMS | CONTROL


# --- functions to start from: of more elements, and of integers ---


def _rolled(lib: Any, x: Any, y: Any) -> Any:
    x = lib.numpy.asarray(x)
    return lib.numpy.tanh(lib.numpy.roll(x, 1) * y + x[..., ::-1]), lib.numpy.max(x * y)


def _counted(lib: Any, x: Any, y: Any) -> Any:
    x, y = lib.numpy.asarray(x), lib.numpy.asarray(y)
    steps = lib.numpy.int32(lib.numpy.sum(lib.numpy.abs(x)) * 2) % 3
    return {"count": steps, "which": x > y, "there": x[steps] * lib.numpy.where(x > y, x, y)}


def _hidden(lib: Any, w: Any, x: Any) -> Any:
    return lib.nn.softmax(lib.numpy.tanh(x @ w) @ w.T, axis=-1) * lib.numpy.cumsum(x, -1)


MORE_BASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "rolled": (_rolled, (numbers(19), numbers(20)[1:])),
    "rolled rows": (_rolled, (numbers(3, 17), numbers(17))),
    "counted": (_counted, (numbers(5), numbers(6)[1:])),
    "hidden": (_hidden, (numbers(4, 3), numbers(2, 4))),
}
STARTS = BASES | MORE_BASES


# --- JAX, with reverse mode through every loop ---


def _bounded_while(goes_on: Function, step: Function, init: Any) -> Any:
    def one(carry: Any, _: None) -> Any:
        return jax.lax.cond(goes_on(carry), step, lambda c: c, carry), None

    return jax.lax.scan(one, init, None, length=STEPS)[0]


def _bounded_fori(lower: Any, upper: Any, step: Function, init: Any) -> Any:
    def one(carry: Any, i: Any) -> Any:
        return jax.lax.cond(i < upper, lambda c: step(i, c), lambda c: c, carry), None

    return jax.lax.scan(one, init, np.arange(STEPS, dtype=np.int32) + lower)[0]


_lax = types.SimpleNamespace(**{k: getattr(jax.lax, k) for k in dir(jax.lax) if k[0] != "_"})
_lax.while_loop, _lax.fori_loop = _bounded_while, _bounded_fori
bounded_jax = types.SimpleNamespace(**vars(eager_jax))
bounded_jax.lax = _lax
