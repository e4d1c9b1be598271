"""debug.breakpoint: variables of the calls around a line, with values while the program runs."""

import bdb
import io
from typing import Any

import numpy as np
import pytest

import stax
from stax import debug, errors

X = np.arange(3, dtype=np.float32)
COMMANDS = "z\np y + k\npp k\nw\nl\n\nu\np x\nnothing\nd\nk\nc\n"


def inner(y: Any, k: int, **options: Any) -> Any:
    z = {"a": 2 * y, "n": (k, "text")}
    debug.breakpoint(**options)
    return y * z["a"]


def outer(x: Any, commands: str, out: Any) -> Any:
    w = x * 3
    return inner(w, 5, stdin=io.StringIO(commands), stdout=out).sum()


@pytest.mark.parametrize("wrap", [lambda f: f, stax.jit, stax.grad])
def test_variables_of_calls_that_are_under_way(wrap: Any) -> None:
    out = io.StringIO()
    wrap(lambda x: outer(x, COMMANDS, out))(X)
    answers = out.getvalue().replace("(stax) ", "").splitlines()
    assert answers[0].startswith("> ") and answers[0].endswith(" inner")
    assert answers[1].startswith("{'a': Array([ 0.,  6., 12.], dtype=float32)")
    assert answers[1].endswith("'n': (5, 'text')}")
    assert answers[2:4] == ["Array([ 5.,  8., 11.], dtype=float32)", "5"]
    assert answers[4].startswith("> ") and answers[5].endswith(" outer")
    (here,) = [line for line in answers if line.startswith("->")]
    assert here.endswith("debug.breakpoint(**options)")
    place = next(i for i, line in enumerate(answers) if line.startswith("NameError"))
    assert answers[place - 1] == "Array([0., 1., 2.], dtype=float32)"
    assert answers[-1] == "5" or answers[-2] == "5"


def test_lanes_frames_and_the_end() -> None:
    out = io.StringIO()
    commands = io.StringIO("x\nu\nc\n" * 2)

    def f(x: Any) -> Any:
        debug.breakpoint(num_frames=1, stdin=commands, stdout=out)
        return x

    stax.jit(stax.vmap(f))(X[:2])
    assert out.getvalue().count("Array(") == 2 and "test_lanes" not in out.getvalue()
    with pytest.raises(bdb.BdbQuit):
        stax.jit(lambda x: outer(x, "q\n", out))(X)
    for wrong in ({"backend": "web"}, {"token": 1}, {"colour": "red"}):
        with pytest.raises(errors.ArgumentValueError, match=r"debug\.breakpoint: "):
            debug.breakpoint(**wrong)
