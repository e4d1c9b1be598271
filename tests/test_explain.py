"""`inspect.explain`: what it says of small programs, each of which shows one decision."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stax
import stax.numpy as snp
from stax import lax
from stax.__main__ import main
from stax.config import config
from stax.extend import Op
from stax.inspect.explain import explanation
from stax.inspect.explanation import Entry, Explanation
from stax.runtime import engine
from stax.trace import bind

X = np.ones((64, 128), np.float32)
W = np.ones((32, 32), np.float32)
V = np.ones(1000, np.float32)


def explained(f: Callable[..., Any], *args: Any) -> Explanation:
    """The explanation, not printed."""
    return explanation(stax.jit(f).lower(*args).graph)


def entry(found: Explanation, title: str) -> Entry:
    """The one step whose title holds a text."""
    (match,) = [e for e in found.all_entries if title in e.title]
    return match


def has(lines: tuple[str, ...], pattern: str) -> bool:
    """Whether one of the lines is matched from its beginning; spaces stand for any number."""
    return any(re.match(pattern.replace(" ", r"\s+"), line) for line in lines)


# --- kernels ---


def softmax(x):
    e = snp.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def test_what_is_fused_by_line(capsys: pytest.CaptureFixture[str]) -> None:
    found = stax.inspect.explain(softmax)(X)
    assert capsys.readouterr().out == f"{found}\n"
    (kernel,) = found.entries
    assert found.route == "a native program, 1 step, 1 kernel"
    assert kernel.title == "kernel0, by rows: [64, 128] reduced along 1, 3 passes along each row"
    assert has(kernel.facts, r"computes reduce_max, sub, exp e = snp\.exp\(x .* test_explain\.py")
    assert has(kernel.facts, r"computes reduce_sum, div return e / e\.sum")
    assert has(kernel.facts, r"keeps exp in scratch for a later pass e = snp")
    assert has(kernel.facts, r"reads x f32\[64,128\]: 32.8 kB; writes t_a \(result 0\) .* 32.8 kB")
    assert has(kernel.facts, r"stores t_a \(result 0\), div: a result")
    assert has(kernel.facts, "one thread: .* length 64, .*, and 4 tasks are worth handing out")
    assert found.copies == () and "copies:\n    none" in str(found)
    assert found.memory == ("peak of 65.5 kB: arguments 32.8 kB, results 32.8 kB, arena 0 B",)


@pytest.mark.parametrize(
    ("f", "args", "layout"),
    [
        (
            lambda x: x.sum(0),
            (X,),
            "by columns: [64, 128] reduced along 0, one pass down blocks of",
        ),
        (lambda x: snp.sin(x) + 1, (X,), "flat map over [64, 128]"),
        (lambda x: x + x.T, (W,), "tiled map over [32, 32]: blocks of axes 0 and 1"),
        (lambda x: x[:, ::-1] + 1, (X,), "map over [64, 128]: vectors along the last axis"),
        (lambda x, y: x + y, (X[:, :3], X[0, :3]), "repeating map over [64, 3]: y once for each"),
        (lambda x: x + 1, (np.float32(1),), "one element"),
    ],
    ids=["columns", "flat", "tiled", "plain", "repeating", "one"],
)
def test_layouts(f: Callable[..., Any], args: tuple[Any, ...], layout: str) -> None:
    kernel = explained(f, *args).all_entries[-1]
    assert layout in kernel.title


def test_small_work_is_done_by_one_thread() -> None:
    facts = explained(lambda x: x + 1, X).entries[0].facts
    assert has(facts, "one thread: its outer loop has length 2, and a task is 8 or more")


def two_kernels(x):
    wave = snp.sin(x)
    total = (snp.exp(x) + wave).sum(0)
    return total, wave.sum(1)[:, None] * total


def test_why_a_value_is_stored_and_a_kernel_stands_apart() -> None:
    found = explained(two_kernels, X)
    first = entry(found, "by columns")
    dear = "stores t_a, sin: reduce_sum reads it in another kernel; 13 operations, more than 8, to"
    assert has(first.facts, dear)
    assert has(first.facts, r"stores t_b \(result 0\), reduce_sum: mul reads it in another kernel")
    second = entry(found, "by rows")
    assert has(second.facts, "apart from kernel0, for reduce_sum: it reduces other axes")


def stored_for_a_library(x):
    return snp.sort(snp.sin(x))


def test_what_a_library_reads_is_stored() -> None:
    found = explained(stored_for_a_library, X)
    assert has(found.entries[0].facts, "stores t_a, sin: sort reads it, which is a step of its own")
    assert "native sort of rows of 128" in found.entries[1].title
    assert has(found.entries[1].facts, r"return snp\.sort\(snp\.sin\(x\)\) test_explain")


def test_dear_values_are_not_computed_again() -> None:
    found = explained(lambda x: snp.sin(x[:, None]) + snp.cos(x)[None, :], V[:100])
    reason = r"stores t_\w, (sin|cos): add reads it in another kernel; 13 operations, more than 2"
    assert sum(has(e.facts, reason) for e in found.entries) == 1


def test_reductions_and_products_that_are_written_otherwise() -> None:
    total = explained(lambda x: x.sum(), np.ones(1 << 16, np.float32))
    assert has(
        total.before, r"reduce_sum of f32\[65536\] in 64 chunks of 1024, then those: .* total"
    )
    long_rows = explained(lambda x: x.sum(), np.ones((256, 256), np.float32))
    assert has(long_rows.before, "reduce_sum along 1 first: that gives more rows long_rows =")
    vector = explained(lambda w, v: w @ v, W, V[:32])
    assert has(vector.before, "dot_general with a vector: a multiplication and a sum, .* vector =")
    outer = explained(lambda a, b: snp.tensordot(a, b, 0), V, V)
    assert has(outer.before, "dot_general sums nothing: a multiplication outer =")


def test_results_over_dying_operands() -> None:
    found = explained(lambda x: snp.sort(x) + 1, X)
    assert has(found.entries[1].facts, "writes t_b over t_a, which is not read any more")


# --- copies ---


def transposed(x):
    return snp.sort(x.T, axis=-1)


def test_a_transpose_that_became_a_copy() -> None:
    found = explained(transposed, X)
    assert has(
        found.copies,
        r"transpose of x, f32\[128,64\] 32.8 kB: sort reads it, which is a step of its own "
        r"return snp\.sort\(x\.T, axis=-1\) test_explain\.py:\d+$",
    )
    assert len(found.copies) == 1


def test_transposes_that_are_no_copies() -> None:
    by_index = explained(lambda x: snp.sin(x.T) + 1, X)
    assert by_index.copies == ()
    assert has(by_index.entries[0].facts, "transpose by index arithmetic, not copied lambda|")
    undone = explained(lambda x: (x.T + 1).T, X)
    assert has(undone.before, "transpose left out: one before it undoes it")
    product = explained(lambda x: x.T @ x, X)
    assert product.copies == ()
    assert has(product.entries[0].facts, "reads x transposed where it lies, not copied")


def test_copies_of_results() -> None:
    found = explained(lambda x: (x, (y := x * 2), y, snp.zeros(3)), X)
    assert has(found.copies, r"copy of x, .*: an input is returned")
    assert has(found.copies, r"copy of t_\w \(result 1\), .*: a value is returned twice")
    assert has(found.copies, r"copy, f32\[3\] 12 B: a constant is returned")


def test_updates_in_place_and_in_a_copy() -> None:
    there = explained(lambda x: (x * 2).at[np.arange(3)].add(1.0), V)
    assert has(entry(there, "scatter (add), updates").facts, "in place: the result lies where")
    assert there.copies == ()
    argument = explained(lambda x: x.at[np.arange(3)].add(1.0), V)
    assert has(argument.copies, "scatter updates a copy, .* it is an argument, which keeps")
    again = explained(lambda x: ((y := x * 2).at[np.arange(3)].add(1.0), y.sum(), y), V)
    assert has(again.copies, "scatter updates a copy, .* (its old value is read|its memory)")


# --- products, libraries, the host ---


def test_products() -> None:
    large = explained(lambda x, w: x[:, :32] @ w, X, W).all_entries
    assert "matrix product by BLAS, [64, 32] by [32, 32]" in [e.title for e in large]
    small = explained(lambda w: w[:3, :3] @ w[:3, :3], W)
    assert has(small.entries[0].facts, "product by loops in the kernel: 27 multiplications are too")
    whole = explained(lambda w: w @ w, W.astype(np.int32))
    assert has(whole.entries[0].facts, "product by loops in the kernel: BLAS has no product of")


def convolve(x, w):
    return lax.conv_general_dilated(x, w, (1, 1), "SAME")


def test_convolutions_are_products_with_patches() -> None:
    images = np.ones((2, 3, 16, 16), np.float32)
    found = explained(convolve, images, np.ones((8, 3, 3, 3), np.float32))
    assert has(found.before, r"convolution of .*: a product with patches return lax\.conv")
    assert has(found.copies, r"copy of x, .*: patches reads it .* return lax\.conv_general_dilated")
    channels_last = {"dimension_numbers": ("NHWC", "HWIO", "NHWC")}

    def convolve_as_it_lies(x, w):
        return lax.conv_general_dilated(x, w, (1, 1), "SAME", **channels_last)

    kernel = np.ones((3, 3, 3, 8), np.float32)
    as_it_lies = explained(convolve_as_it_lies, np.ones((2, 16, 16, 3), np.float32), kernel)
    assert has(as_it_lies.copies, r"patches of x, .* return lax\.conv_general_dilated")
    assert not has(as_it_lies.copies, r"copy of x")
    assert entry(found, "matrix product by BLAS, [512, 27] by [27, 8]")


def test_fourier_passes_and_factorizations() -> None:
    passes = explained(snp.fft.fft, np.ones((16, 100), np.complex64))
    assert entry(passes, "Fourier pass of length 100 over axis 1")
    passes = explained(snp.fft.fft, np.ones((16, 101), np.complex64))
    assert entry(passes, "Fourier pass of length 101 over axis 1, as a convolution of length 256")
    assert entry(explained(snp.linalg.cholesky, W), "cholesky by LAPACK")
    select = entry(explained(lambda x: lax.top_k(x, 3), X), "native selection of rows of 128")
    assert has(select.facts, "parallel: in 64 tasks")
    assert entry(explained(lambda x: lax.cumsum(x, axis=1), X), "along axis 1")


def printing(xs):
    def step(total, x):
        total = total + x
        stax.debug.print("{}", total)
        return total, total

    stax.debug.print("start")
    return lax.scan(step, snp.float32(0), xs)


def test_host_calls_are_marked_and_more_so_in_loops() -> None:
    found = explained(printing, V[:10])
    assert has(found.host_calls, r"debug_callback of .*: once stax\.debug\.print\(\"start\"\)")
    assert has(
        found.host_calls, r"debug_callback of .*: ONCE PER STEP, 10 times stax\.debug\.print"
    )
    assert entry(found, "HOST CALL: debug_callback")
    assert entry(found, "HOST CALL, ONCE PER STEP: debug_callback")
    assert "  HOST CALLS:\n" in str(found)
    assert has(entry(found, "scan loop of 10 steps, step by step").facts, "not by lanes: .* effect")


# --- loops ---


def test_loops_by_lanes() -> None:
    found = explained(lambda x: lax.fori_loop(0, 50, lambda i, x: x + snp.sin(x), x), V)
    (loop,) = found.entries
    assert (
        loop.title == "scan loop of 50 steps, by lanes: 1000 side by side, each through all steps"
    )
    assert has(loop.facts, "the carry stays in registers")
    assert has(loop.facts, r"computes sin, add found = explained\(lambda x: lax\.fori_loop")


def test_loops_with_an_end_condition() -> None:
    root = lambda x: lax.while_loop(lambda c: c * c > x, lambda c: (c + x / c) / 2, x)  # noqa: E731
    (loop,) = explained(root, np.float32(2)).entries
    assert loop.title.startswith("while loop, one kernel with an end condition")
    assert has(loop.facts, r"asks mul, gt root = lambda x: lax\.while_loop")
    assert has(loop.facts, r"computes 2 x div, add root = lambda x: lax\.while_loop")


def power(w, v):
    return lax.while_loop(lambda c: c[1] < 9, lambda c: (snp.tanh(w @ c[0]), c[1] + 1), (v, 0))


def test_loops_step_by_step_say_why() -> None:
    loop = entry(explained(power, W, V[:32]), "while loop, step by step")
    assert has(loop.facts, "not by lanes: a step has many operations for each lane")
    assert has(loop.facts, "not one kernel with an end condition: a step has many")
    assert [part.title for part in loop.inner] == ["condition", "step"]
    assert has(loop.inner[1].entries[0].facts, "computes mul, reduce_sum, tanh return lax")


def rnn(w, xs):
    def step(h, x):
        h = snp.tanh(h @ w + x @ w)
        return h, h

    return lax.scan(step, snp.zeros((64, 32)), xs)


def test_loops_over_blocks_and_what_is_done_outside() -> None:
    found = explained(rnn, W, np.ones((50, 64, 32), np.float32))
    once = r"dot_general of 50 steps at once, before the loop h = snp\.tanh\(h @ w \+ x @ w\)"
    assert has(found.before, once)
    product = entry(found, "matrix product by BLAS, [3200, 32] by [32, 32]")
    assert has(product.facts, r"h = snp\.tanh\(h @ w \+ x @ w\) test_explain\.py")
    loop = entry(found, "scan loop of 50 steps, over 4 blocks of 16 rows side by side")
    assert has(loop.facts, "not by lanes: ")
    gradient = explained(
        stax.grad(lambda w, xs: rnn(w, xs)[0].sum()), W, np.ones((50, 64, 32), np.float32)
    )
    assert has(gradient.before, "sum of dot_general over 50 steps at once, after the loop h = snp")


def test_carries_updated_in_place() -> None:
    fill = lambda x: lax.fori_loop(0, 9, lambda i, x: x.at[i].set(x[i - 1] * 2), x)  # noqa: E731
    table = np.ones((100, 50), np.float32)
    argument = explained(fill, table)
    assert has(entry(argument, "scan loop").facts, "carries .*: updated in place, in a copy of its")
    assert has(argument.copies, "scan updates a copy, .*: it is an argument")
    made = explained(lambda x: fill(x * 2), table)
    assert has(entry(made, "scan loop").facts, "carries .*: updated in place, where its initial")
    assert made.copies == ()


def test_small_updates_of_what_is_carried() -> None:
    def put(i, x):
        return lax.dynamic_update_slice(x, x[:1] * 2, (i,))

    found = explained(lambda x: lax.fori_loop(0, 9, put, x), V)
    assert has(found.before, "dynamic_update_slice of a carried array as a scatter, .* return lax")
    assert has(entry(found, "scan loop").facts, r"carries .* f32\[1000\]: updated in place")


def test_choices_show_their_branches() -> None:
    choice = entry(explained(lambda x: lax.cond(x[0] > 0, snp.sin, snp.cos, x), V), "choice")
    ops = [part.entries[0].facts[0].split()[:2] for part in choice.inner]
    assert ops == [["computes", "cos"], ["computes", "sin"]]


# --- the route, memory, the command ---


class Unlowered(Op):
    name = "unlowered"

    def abstract_eval(self, x):
        return x

    def evaluate(self, x):
        return x


def test_the_reference_evaluator_says_why() -> None:
    graph = stax.make_graph(lambda x: bind(Unlowered(), x) + 1)(V)
    with config.override(strict=False):
        found = explanation(graph)
    assert found.route.startswith("the reference evaluator, op by op in NumPy")
    assert "unlowered" in found.route and found.entries == ()


def test_a_jitted_function_keeps_its_options() -> None:
    found = stax.inspect.explain(stax.jit(lambda x: x.sum(0), dynamic={"x": {0: "n"}}))(X)
    assert found.route.endswith("for any lengths n")
    static = stax.jit(lambda n, x: x * n, static_argnums=0)
    assert len(stax.inspect.explain(static)(2, V).entries) == 1


def deep(x):
    for _ in range(8):
        x = snp.sin(x @ x)
    return x.sum()


def test_a_memory_budget_says_what_is_computed_again() -> None:
    x = np.eye(64, dtype=np.float32)
    tight = stax.inspect.explain(stax.grad(deep), memory_budget=120_000)(x)
    assert has(
        tight.before, r"memory_budget=120000: \d+ bytes as it stands, \d+ where some is .*: "
    )
    wide = stax.inspect.explain(stax.jit(deep, memory_budget=1 << 20))(x)
    assert has(wide.before, "memory_budget=1048576: .* are enough as it stands")
    assert has(wide.memory, "arena of .*temporary values")


def test_it_neither_runs_nor_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stax.api.compiled.compile_graph", None)
    huge = stax.ShapeDtypeStruct((1 << 20, 1 << 20), np.float32)
    assert len(stax.inspect.explain(lambda x: snp.exp(x).sum(1))(huge).entries) == 1
    with pytest.raises(TypeError, match="explain: 3 is not callable"):
        stax.inspect.explain(3)  # type: ignore[arg-type]


MODEL = """
import jax.numpy as jnp
def loss(w, x):
    return jnp.tanh(x @ w).sum()
def example_args():
    return jnp.ones((64, 64)), jnp.ones((64, 64))
"""


@pytest.mark.parametrize("options", [(), ("--grad",)], ids=["value", "grad"])
def test_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...]
) -> None:
    file = tmp_path / "model.py"
    file.write_text(MODEL)
    assert main(["explain", f"{file}:loss", *options]) == 0
    said = capsys.readouterr().out
    assert "matrix product by BLAS, [64, 64] by [64, 64]" in said and "model.py:4" in said
    assert main(["explain", f"{file}:none"]) == 2
    assert "has no function 'none'" in capsys.readouterr().err


def test_what_code_generation_decides_is_told() -> None:
    x = np.ones((512, 30000), np.float32)
    assert has(explained(lambda x: x.sum(1), x).before, r"reduce_sum of f32\[512,30000\] in chunks")
    assert has(explained(lambda x: x.sum(0), x).before, r"reduce_sum of f32\[512,30000\] in chunks")
    found = explained(lambda x: x / (x.max(1, keepdims=True) + 1), x)
    assert has(found.before, "kernel0 asks ahead for memory of x: rows that are read twice")
    if engine.target().vector_bytes == 64:
        assert has(found.before, "division of many by one: by its reciprocal")
