"""What `inspect.saved_residuals` and `ad_checkpoint.print_saved_residuals` say."""

import re
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from jax.ad_checkpoint import print_saved_residuals as jax_print_saved_residuals

import stax
import stax.numpy as snp
from stax.ad_checkpoint import checkpoint_name, print_saved_residuals
from stax.inspect import saved_residuals
from stax.interpreters.remat import Entry

X = np.linspace(0, 1, 12, dtype=np.float32).reshape(3, 4)
W = np.ones((4, 4), np.float32)


def ops(entries: list[Entry]) -> list[str]:
    return [e.node.op.name for e in entries]


def test_a_function_and_its_text(capsys: Any) -> None:
    def layer(x: Any, w: Any) -> Any:
        y = x @ w
        return snp.where(y > 0, y * y, y * 3)

    found = saved_residuals(layer)(X, W)
    assert capsys.readouterr().out == f"{found}\n"
    head, *lines = str(found).splitlines()
    assert head.startswith("layer: 3 saved, 48 B for reverse mode alone; ")
    assert [line.split()[0] for line in lines] == [
        "saved" if e.saved else "again" for e in found.reports[0].entries
    ]
    (product,) = [line for line in lines if "dot_general" in line]
    assert re.fullmatch(
        r"  saved  f32\[3,4\] +48 B  dot_general  a product is not computed again +"
        r"y = x @ w  test_residuals.py:\d+",
        product,
    )
    assert "gt" in ops(found.recomputed)


def test_nothing_is_computed_and_shapes_are_enough() -> None:
    huge = stax.ShapeDtypeStruct((1 << 20, 1 << 20), "float32")
    found = saved_residuals(lambda x: snp.exp(x).sum())(huge)
    assert found.nbytes == 0  # exp is computed again from the argument
    assert ops(found.recomputed) == ["exp"]


def test_arguments_and_results_take_no_memory_of_their_own() -> None:
    found = saved_residuals(lambda x: snp.tanh(x))(X)
    assert ops(found.saved) == ["tanh"]
    assert found.saved[0].why == "a result"
    assert found.nbytes == 0


def test_a_loop_is_told_by_step() -> None:
    def rnn(w: Any, xs: Any) -> Any:
        def cell(h: Any, x: Any) -> Any:
            h = snp.tanh(h @ w + x)
            return h, h

        return (stax.lax.scan(cell, snp.zeros(4), xs)[1] ** 2).sum()

    found = saved_residuals(rnn)(W, np.ones((10, 4), np.float32))
    outer, step = found.reports
    assert (outer.title, step.title, step.steps) == ("rnn", "cell, each of 10 steps", 10)
    why = [e.why for e in step.entries if e.saved]
    assert why == ["the same in every step", "carried into the step", "a result of the step"]
    assert "sub" in ops([e for e in step.entries if not e.saved])
    assert "16 B a step, 160 B for reverse mode alone" in str(found)


def test_policies_of_checkpoint() -> None:
    def inner(y: Any) -> Any:
        return snp.sin(snp.cos(checkpoint_name(snp.sin(y), "kept")))

    policy = stax.checkpoint_policies.save_only_these_names("kept")
    found = saved_residuals(stax.checkpoint(inner, policy=policy))(X)
    _, inside = found.reports
    assert inside.title == "inner, under checkpoint"
    assert [e.why for e in inside.entries if e.saved] == ["an argument", "the policy saves it"]
    assert set(ops([e for e in inside.entries if not e.saved])) == {"sin", "cos"}
    assert "name 'kept'" in str(found)


def test_loops_in_loops_and_checkpoint_in_a_loop() -> None:
    def f(x: Any) -> Any:
        def outer(c: Any, _: Any) -> Any:
            c, _ = stax.lax.scan(lambda c, _: (stax.checkpoint(snp.sin)(c), None), c, None, 3)
            return c, None

        return stax.lax.scan(outer, x, None, 2)[0]

    titles = [r.title for r in saved_residuals(f)(X).reports]
    assert len(titles) == 4
    assert sum("steps" in t for t in titles) == 2
    assert sum("checkpoint" in t for t in titles) == 1


@pytest.mark.parametrize(
    "body",
    [
        lambda np_, x, w: np_.sin(x @ w).sum(),
        lambda np_, x, w: (np_.maximum(x, 0.0) @ w).sum(),
        lambda np_, x, w: (x @ w @ w).sum(),
    ],
)
def test_as_jax_prints_it_where_the_same_is_saved(body: Any, capsys: Any) -> None:
    """Never more than JAX, and in the same words; what is cheap is not saved here."""
    print_saved_residuals(lambda x, w: body(snp, x, w), X, W)
    ours = capsys.readouterr().out.splitlines()
    jax_print_saved_residuals(lambda x, w: body(jnp, x, w), X, W)
    theirs = capsys.readouterr().out.splitlines()
    assert len(ours) <= len(theirs)
    assert {line for line in theirs if "argument" in line} <= {*ours}
    pattern = r"(bool|f32)\[.*\] (from the argument \w+|output of \w+ from test_residuals\.py:\d+)"
    assert all(re.fullmatch(pattern, line) for line in ours)


def test_a_loop_of_unknown_length() -> None:
    def f(x: Any) -> Any:
        return stax.lax.while_loop(lambda c: c.sum() < 10.0, lambda c: snp.sin(c) + c * x, x)

    found = saved_residuals(f)(snp.ones(4))
    assert [r.title for r in found.reports] == ["f", "function, each step"]
    assert "16.4 kB if 1024 long" in str(found)


def test_what_is_no_function() -> None:
    with pytest.raises(TypeError, match="saved_residuals: 3 is not callable"):
        saved_residuals(3)(X)  # type: ignore[arg-type]
