"""Where in the user's program a node comes from."""

import sys
import threading

import stax
import stax.numpy as snp
from stax.api import make_graph
from stax.source import Source, is_internal, name_stack, named_scope, user_source


def test_user_source_is_the_line_of_the_caller() -> None:
    source = user_source()
    assert source is not None
    assert source.text() == "source = user_source()"
    assert str(source) == f"test_source.py:{sys._getframe().f_lineno - 3}"
    assert source.shown() == f"source = user_source()  {source}"


def test_frames_of_the_library_are_skipped() -> None:
    graph = make_graph(lambda x: snp.mean(x))(snp.ones(3))
    sources = {node.source.text() for node in graph.nodes if node.source}
    assert sources == {"graph = make_graph(lambda x: snp.mean(x))(snp.ones(3))"}


def test_internal_code() -> None:
    assert is_internal(stax.grad.__code__)
    assert not is_internal(test_internal_code.__code__)


def test_line_of_an_expression_over_several_lines() -> None:
    def f(x: stax.Array) -> stax.Array:
        return (
            snp.sin(x)
            +
            snp.cos(x)
        )  # fmt: skip

    graph = make_graph(f)(1.0)
    lines = {n.op.name: n.source.text() for n in graph.nodes if n.source}
    assert lines["sin"] == "snp.sin(x)"
    assert lines["cos"] == "snp.cos(x)"


def test_source_without_text() -> None:
    code = compile("\n1 + x\n", "<generated>", "exec")
    assert Source(code, 4).shown() == "<generated>:2"


def test_name_stack() -> None:
    assert name_stack() == ()
    with named_scope("outer"), named_scope("inner"):
        assert name_stack() == ("outer", "inner")
    assert name_stack() == ()


def test_name_stack_is_restored_after_an_exception() -> None:
    try:
        with named_scope("outer"):
            raise KeyError
    except KeyError:
        pass
    assert name_stack() == ()


def test_name_stack_belongs_to_a_thread() -> None:
    seen = []
    with named_scope("outer"):
        thread = threading.Thread(target=lambda: seen.append(name_stack()))
        thread.start()
        thread.join()
    assert seen == [()]


def test_source_and_scope_survive_transforms() -> None:
    def loss(x: stax.Array) -> stax.Array:
        with named_scope("head"):
            return snp.sum(snp.exp(x) * 2)

    for transform in (
        stax.grad(loss),
        stax.grad(lambda x: stax.grad(loss)(x).sum()),
        stax.vmap(loss),
        lambda x: stax.jvp(loss, (x,), (x,)),
        stax.jit(loss),
    ):
        shape = (2, 3) if transform.__name__ == "loss" and transform is not loss else (3,)
        nodes = [n for n in make_graph(transform)(snp.ones(shape)).nodes if n.op.name == "exp"]
        assert nodes
        for node in nodes:
            assert node.scope == ("head",)
            assert node.source is not None
            assert node.source.text() == "return snp.sum(snp.exp(x) * 2)"
