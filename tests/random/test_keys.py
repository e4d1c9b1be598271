"""Keys as arrays: how they move, print, pickle and pass through transforms; what is no key."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import stax
import stax.numpy as snp
import stax.random as sr
from stax import errors
from tests.like_jax import assert_like_jax

MOVES: dict[str, Callable[[Any, Any], Any]] = {
    "item": lambda n, k: k[1],
    "range": lambda n, k: k[1:3],
    "backwards": lambda n, k: k[::-1],
    "array": lambda n, k: k[n.array([3, 0])],
    "new axis": lambda n, k: k[:, None],
    "reshape": lambda n, k: k.reshape(2, 2).T,
    "stack": lambda n, k: n.stack([k[0], k[2]]),
    "list": lambda n, k: n.array([k[0], k[2]]),
    "concatenate": lambda n, k: n.concatenate([k, k[:1]]),
    "where": lambda n, k: n.where(n.arange(4) > 1, k, k[0]),
    "broadcast": lambda n, k: n.broadcast_to(k[0], (2, 3)),
    "set": lambda n, k: k.at[0].set(k[1]),
    "zeros": lambda n, k: n.zeros_like(k),
    "squeeze": lambda n, k: n.squeeze(k[:1]),
    "take": lambda n, k: n.take(k, n.array([1, 7])),
    "ravel": lambda n, k: k.reshape(2, 2).ravel(),
}


def assert_same_keys(ours: Any, theirs: Any) -> None:
    assert stax.dtypes.issubdtype(ours.dtype, stax.dtypes.prng_key)
    assert ours.shape == theirs.shape
    assert_like_jax(sr.key_data(ours), jr.key_data(theirs))


@pytest.mark.parametrize("wrap", [lambda f: f, stax.jit], ids=["eager", "jit"])
@pytest.mark.parametrize("move", MOVES)
def test_keys_move_as_other_elements_do(move: str, wrap: Any) -> None:
    found = wrap(lambda k: MOVES[move](snp, k))(sr.split(sr.key(3), 4))
    assert_same_keys(found, MOVES[move](jnp, jr.split(jr.key(3), 4)))


def test_keys_are_equal_or_not() -> None:
    keys = sr.split(sr.key(0), 3)
    np.testing.assert_array_equal(keys == keys[1], [False, True, False])
    np.testing.assert_array_equal(stax.jit(lambda k: k != k[1])(keys), [True, False, True])


def test_iteration() -> None:
    first, second = sr.split(sr.key(0))
    assert first.shape == second.shape == ()
    assert len(list(sr.split(sr.key(0), 5))) == 5


def test_attributes() -> None:
    key = sr.key(0)
    assert (key.shape, key.ndim, key.size, key.itemsize, key.nbytes) == ((), 0, 1, 8, 8)
    assert key.dtype is sr.key_dtype() is sr.key_dtype("threefry2x32")
    assert key.dtype.name == str(jr.key(0).dtype)
    assert sr.key_impl(key) == sr.key_impl(sr.PRNGKey(0)) == jr.key_impl(jr.key(0))
    assert sr.clone(key) is key
    assert stax.device_get(key) is key


@pytest.mark.parametrize("num", [(), (2,), (2, 2), (0,)])
def test_printed_form(num: Any) -> None:
    assert repr(sr.split(sr.key(1), num)) == repr(jr.split(jr.key(1), num))


def test_wrapped_words() -> None:
    words = np.arange(6, dtype=np.uint32).reshape(3, 2)
    assert_same_keys(sr.wrap_key_data(words), jr.wrap_key_data(words))
    assert_same_keys(stax.jit(sr.wrap_key_data)(words), jr.wrap_key_data(words))
    np.testing.assert_array_equal(sr.key_data(sr.wrap_key_data(words)), words)


def test_copies() -> None:
    keys = sr.split(sr.key(0), 3)
    for same in (copy.copy(keys), copy.deepcopy(keys), pickle.loads(pickle.dumps(keys))):
        assert same.type is keys.type
        np.testing.assert_array_equal(sr.key_data(same), sr.key_data(keys))


def test_words_stay_words() -> None:
    raw = sr.PRNGKey(0)
    assert sr.split(raw).type is stax.ShapeDtypeStruct((2, 2), "uint32").type
    assert sr.fold_in(raw, 1).dtype == "uint32"


def test_in_and_out_of_jit() -> None:
    step = stax.jit(lambda keys, x: (sr.split(keys[0]), x + sr.uniform(keys[1])))
    keys, x, expected = sr.split(sr.key(0)), snp.float32(1.0), jr.split(jr.key(0))
    for _ in range(3):  # the native entry takes over after the first call
        keys, x = step(keys, x)
        expected = jr.split(expected[0])
        assert_same_keys(keys, expected)


def test_closed_over_and_static() -> None:
    key = sr.key(4)
    np.testing.assert_array_equal(stax.jit(lambda: sr.bits(key, (3,)))(), sr.bits(key, (3,)))
    compiled = stax.jit(lambda k: sr.bits(k, (3,))).lower(key).compile()
    np.testing.assert_array_equal(compiled(key), sr.bits(key, (3,)))


def test_derivatives_ignore_keys() -> None:
    def loss(key: Any, x: Any) -> Any:
        return (x * sr.uniform(sr.split(key)[0], x.shape)).sum()

    key, x = sr.key(0), snp.ones(3)
    expected = jax.grad(lambda x: (x * jr.uniform(jr.split(jr.key(0))[0], x.shape)).sum())(
        jnp.ones(3)
    )
    for wrap in (lambda f: f, stax.jit):
        np.testing.assert_array_equal(wrap(stax.grad(loss, argnums=1))(key, x), expected)


def test_a_key_may_be_mapped_beside_one_that_is_not() -> None:
    keys, key = sr.split(sr.key(0), 3), sr.key(9)

    def draw(n: Any, r: Any, k: Any, one: Any) -> Any:
        return r.bits(n.stack([k, one])[0]) + r.bits(one)

    ours = stax.vmap(lambda k: draw(snp, sr, k, key))(keys)
    theirs = jax.vmap(lambda k: draw(jnp, jr, k, jr.key(9)))(jr.split(jr.key(0), 3))
    assert_like_jax(ours, theirs)


KEY = sr.key(0)
MISTAKES: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "add": (lambda: KEY + 1, TypeError, "takes part in no arithmetic"),
    "negate": (lambda: -KEY, TypeError, "neg does not accept key<fry>"),
    "order": (lambda: KEY < KEY, TypeError, "lt does not accept key<fry>"),
    "convert": (lambda: KEY.astype("float32"), TypeError, "does not become f32"),
    "numpy": (lambda: np.asarray(KEY), TypeError, "not numbers"),
    "bool": (lambda: bool(KEY), TypeError, "not numbers"),
    "traced numpy": (lambda: stax.vmap(lambda x: x + float(KEY))(snp.ones(2)), TypeError, "numb"),
    "hash": (lambda: hash(KEY), TypeError, "not hashable"),
    "several": (lambda: sr.uniform(sr.split(KEY)), ValueError, "one key"),
    "floats": (lambda: sr.uniform(snp.ones(2)), TypeError, "no random key"),
    "three words": (lambda: sr.uniform(np.ones(3, "uint32")), TypeError, "two words"),
    "a number": (lambda: sr.uniform(3), TypeError, "takes a random key"),
    "a seed of 1.0": (lambda: sr.key(1.0), TypeError, "a seed is an integer"),
    "several seeds": (lambda: sr.key(snp.arange(3)), TypeError, "one seed"),
    "a key as seed": (lambda: sr.PRNGKey(KEY), TypeError, "a seed is an integer"),
    "a large seed": (lambda: sr.key(2**64), OverflowError, "64 bits"),
    "several data": (lambda: sr.fold_in(KEY, snp.arange(2)), TypeError, "one integer"),
    "generator": (lambda: sr.key(0, impl="rbg"), ValueError, "no generator 'rbg'"),
    "twice": (lambda: sr.key(0, impl="a", dtype="b"), ValueError, "both name"),
    "bits": (lambda: sr.bits(KEY, (2,), "int32"), ValueError, "unsigned"),
    "uniform": (lambda: sr.uniform(KEY, (2,), "int32"), ValueError, "floating dtype"),
    "randint": (lambda: sr.randint(KEY, (2,), 0, 3, "float32"), TypeError, "draws integers"),
    "bernoulli": (lambda: sr.bernoulli(KEY, 1), TypeError, "probability is a float"),
    "shape": (lambda: sr.uniform(KEY, (2,), minval=snp.ones(3)), ValueError, "broadcast"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(name: str) -> None:
    function, kind, rule = MISTAKES[name]
    with pytest.raises(kind, match=rule) as caught:
        function()
    assert isinstance(caught.value, errors.StaxError)
