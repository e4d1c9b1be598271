"""stax.tree against jax.tree_util: the same leaves, structures, paths and errors."""

import collections
import copy
import dataclasses
import doctest
import os
import pickle
import time
from typing import Any

import jax
import pytest
from hypothesis import given, strategies as st

import stax.tree
import stax.tree_nodes
import stax.tree_util as ours

theirs = jax.tree_util


class Point(collections.namedtuple("Point", "x y")):
    """A namedtuple by inheritance; its base is the class that has the fields."""

    __slots__ = ()


class Pair:
    """Registered with both libraries, without keys."""

    def __init__(self, first: Any, second: Any, name: str = "pair") -> None:
        self.first, self.second, self.name = first, second, name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pair) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(self.name)


for library in (ours, theirs):
    library.register_pytree_node(
        Pair,
        lambda pair: ((pair.first, pair.second), pair.name),
        lambda name, children: Pair(*children, name),
    )


@dataclasses.dataclass
class Config:
    weights: Any
    bias: Any
    mode: str = dataclasses.field(default="fast", metadata={"static": True})


for library in (ours, theirs):
    library.register_dataclass(Config)


def containers(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    names = st.text("abc", max_size=2)
    dicts = st.dictionaries(names, children, max_size=3)
    return st.one_of(
        st.lists(children, max_size=3),
        st.lists(children, max_size=3).map(tuple),
        st.lists(children, max_size=2).map(collections.deque),
        dicts,
        dicts.map(collections.OrderedDict),
        dicts.map(lambda items: collections.defaultdict(list, items)),
        st.dictionaries(st.integers(0, 3), children, max_size=3),
        st.builds(Point, children, children),
        st.builds(Pair, children, children, names),
        st.builds(Config, children, children, names),
    )


leaves = st.one_of(
    st.integers(0, 9), st.floats(0, 1), st.none(), st.just(time.gmtime(0)), st.just("text")
)
trees = st.recursive(leaves, containers, max_leaves=12)


def number(leaf: Any) -> bool:
    return isinstance(leaf, list | int)


@given(trees, st.sampled_from([None, number, lambda leaf: leaf is None]))
def test_flatten_and_unflatten_as_jax(tree: Any, is_leaf: Any) -> None:
    found, treedef = ours.tree_flatten(tree, is_leaf)
    expected, their_treedef = theirs.tree_flatten(tree, is_leaf)
    assert found == expected
    assert str(treedef) == str(their_treedef)
    assert (treedef.num_leaves, treedef.num_nodes) == (
        their_treedef.num_leaves,
        their_treedef.num_nodes,
    )
    rebuilt = ours.tree_unflatten(treedef, found)
    their_rebuilt = theirs.tree_unflatten(their_treedef, expected)
    # repr also compares the order of dictionaries and the classes of containers.
    assert repr(strip(rebuilt)) == repr(strip(their_rebuilt))
    assert ours.tree_structure(rebuilt, is_leaf) == treedef
    assert hash(ours.tree_structure(rebuilt, is_leaf)) == hash(treedef)


def strip(tree: Any) -> Any:
    """Pair has no repr that shows its content, so show it as a tuple of its parts."""
    if isinstance(tree, Pair):
        return "Pair", strip(tree.first), strip(tree.second), tree.name
    if isinstance(tree, Config):
        return "Config", strip(tree.weights), strip(tree.bias), tree.mode
    if isinstance(tree, dict):
        return type(tree), [(key, strip(value)) for key, value in tree.items()]
    if isinstance(tree, tuple | list | collections.deque):
        return type(tree), [strip(item) for item in tree]
    return tree


@given(trees, trees)
def test_structures_are_equal_where_those_of_jax_are(first: Any, second: Any) -> None:
    equal = ours.tree_structure(first) == ours.tree_structure(second)
    assert equal == (theirs.tree_structure(first) == theirs.tree_structure(second))


@given(trees, st.sampled_from([None, number, lambda leaf: leaf is None]))
def test_key_paths_as_jax(tree: Any, is_leaf: Any) -> None:
    found, treedef = ours.tree_flatten_with_path(tree, is_leaf)
    expected, _ = theirs.tree_flatten_with_path(tree, is_leaf)
    assert treedef == ours.tree_structure(tree, is_leaf)
    assert [leaf for _, leaf in found] == [leaf for _, leaf in expected]
    for (path, _), (their_path, _) in zip(found, expected, strict=True):
        assert ours.keystr(path) == theirs.keystr(their_path)
        assert repr(path) == repr(their_path)
        simple = ours.keystr(path, simple=True, separator="/")
        assert simple == theirs.keystr(their_path, simple=True, separator="/")


@given(trees, trees)
def test_map_over_two_trees_as_jax(first: Any, second: Any) -> None:
    def outcome(library: Any) -> Any:
        try:
            return strip(library.tree_map(lambda *leaves: leaves, first, second))
        except ValueError as error:
            return str(error).splitlines()[0].replace("tree_map tree", "")

    assert repr(outcome(ours)) == repr(outcome(theirs))


@given(trees, trees)
def test_broadcast_as_jax(prefix: Any, full: Any) -> None:
    def outcome(library: Any) -> Any:
        try:
            return strip(library.tree_broadcast(prefix, full))
        except ValueError as error:
            return str(error).splitlines()[:2]

    assert repr(outcome(ours)) == repr(outcome(theirs))


@given(trees)
def test_every_tree_is_broadcast_to_itself(tree: Any) -> None:
    assert stax.tree.broadcast_prefix(tree, tree) == ours.tree_leaves(tree)
    assert stax.tree.broadcast_prefix(0, tree) == [0] * len(ours.tree_leaves(tree))


def test_what_is_a_leaf() -> None:
    class Triple(tuple):
        pass

    for leaf in (
        collections.deque([1]),
        time.gmtime(0),
        os.stat_result(range(10)),
        Triple((1, 2)),
        3,
        "text",
    ):
        assert ours.tree_leaves([leaf]) == [leaf]
        assert ours.treedef_is_leaf(ours.tree_structure(leaf))
    assert ours.tree_leaves(None) == []
    assert not ours.is_tree_node(int)
    assert ours.is_tree_node(Point)
    assert ours.all_leaves([1, "a"])
    assert not ours.all_leaves([1, None])
    assert not ours.all_leaves([1, (2,)])


def test_a_deque_beside_a_registered_class_is_a_leaf() -> None:
    tree = (Pair(1, collections.deque([2])), collections.deque([3]))
    for _ in range(2):
        assert ours.tree_leaves(tree) == [1, collections.deque([2]), collections.deque([3])]
        assert ours.tree_leaves((Pair(1, [2]), [3])) == [1, 2, 3]


def test_static_data_is_not_exchanged_for_equal_data() -> None:
    assert ours.tree_map(lambda leaf: leaf, {1: 0.0}) == {1: 0.0}
    for key in (1, True, 1.0):
        [same] = ours.tree_map(lambda leaf: leaf, {key: 0.0})
        assert type(same) is type(key)


def test_keys_without_order_are_refused() -> None:
    for flatten in (ours.tree_flatten, ours.tree_flatten_with_path):
        with pytest.raises(ValueError, match="sorting pytree dictionary keys") as error:
            flatten({1: 0, "a": 1})
    assert str(error.value) == (
        "Comparator raised exception while sorting pytree dictionary keys. The keys are of types "
        "int, str, which have no common order; use keys of one type, or an OrderedDict."
    )


def test_mismatch_names_the_key_path() -> None:
    with pytest.raises(ValueError) as error:
        ours.tree_map(lambda x, y: x, {"a": (1, [2])}, {"a": (1, (2,))})
    assert str(error.value) == (
        "pytree structure error: different types at key path\n"
        "    tree_map tree['a'][1]\n"
        "At that key path, the prefix pytree tree_map tree has\n"
        "    <class 'list'>\n"
        "but the full pytree has\n"
        "    <class 'tuple'>\n"
        "so their Python types differ."
    )


def test_prefix_error_is_named_by_the_caller() -> None:
    [describe] = stax.tree.prefix_errors(({"a": 0},), ({"a": 1, "b": 2},))
    assert str(describe("vmap in_axes")) == (
        "pytree structure error: different numbers of pytree children at key path\n"
        "    vmap in_axes[0]\n"
        "At that key path, the prefix pytree vmap in_axes has\n"
        "    <class 'dict'> with 1 child\n"
        "but the full pytree has\n"
        "    <class 'dict'> with 2 children\n"
        "so the numbers of children do not match; only the second has ['b']."
    )
    assert stax.tree.prefix_errors(0, (1, 2)) == []


def test_equality_errors() -> None:
    found = list(stax.tree.equality_errors((1, {"a": 2}, 3), (1, {"b": 2}, [3])))
    assert [(ours.keystr(path), detail) for path, _, _, detail in found] == [
        ("[1]", "the pytree node metadata does not match"),
        ("[2]", "their Python types differ"),
    ]
    assert list(stax.tree.equality_errors((1, [2]), (3, [4]))) == []


def test_none_in_a_prefix() -> None:
    def is_none(node: Any) -> bool:
        return node is None

    broadcast = stax.tree.broadcast_prefix
    assert broadcast((0, None), ((1, 2), [3, 4]), is_leaf=is_none) == [0, 0, None, None]
    with pytest.raises(ValueError, match=r"prefix_tree\[1\]"):
        broadcast((0, None), ((1, 2), [3, 4]))


def test_reduce_all_transpose() -> None:
    assert ours.tree_reduce(lambda x, y: x - y, [1, (2, 3)]) == -4
    assert ours.tree_reduce(lambda x, y: x + y, None, 5) == 5
    assert ours.tree_reduce_associative(lambda x, y: f"({x}{y})", list("abc")) == "(a(bc))"
    assert ours.tree_reduce_associative(max, (), identity=0) == 0
    with pytest.raises(TypeError, match="identity"):
        ours.tree_reduce_associative(max, ())
    assert ours.tree_all([True, (1, None)])
    assert not ours.tree_all({"a": 0})
    outer, inner = ours.tree_structure([0, 0, 0]), ours.tree_structure({"a": 0, "b": 0})
    tree = [{"a": 1, "b": 2}, {"a": 3, "b": 4}, {"a": 5, "b": 6}]
    expected = {"a": [1, 3, 5], "b": [2, 4, 6]}
    assert ours.tree_transpose(outer, inner, tree) == expected
    assert ours.tree_transpose(outer, None, tree) == expected
    with pytest.raises(TypeError, match="Mismatch"):
        ours.tree_transpose(outer, inner, tree[:2])


def test_treedefs() -> None:
    treedef = ours.tree_structure((1, {"a": 2}))
    assert ours.treedef_tuple(ours.treedef_children(treedef)) == treedef
    assert ours.treedef_children(treedef)[1] == ours.tree_structure({"a": 0})
    assert str(treedef.compose(ours.tree_structure([0, 0]))) == "PyTreeDef(([*, *], {'a': [*, *]}))"
    assert treedef.node_data() == (tuple, None)
    assert ours.tree_structure(1).node_data() is None
    assert treedef.flatten_up_to(([1], {"a": None})) == [[1], None]
    assert ours.build_tree(treedef, [[1], [(2, 3)]]) == ([1], {"a": (2, 3)})
    assert pickle.loads(pickle.dumps(treedef)) == treedef
    assert copy.deepcopy(treedef) == treedef
    assert treedef != "something else"
    with pytest.raises(ValueError, match=r"[Tt]oo few leaves"):
        treedef.unflatten([1])
    with pytest.raises(ValueError, match=r"[Tt]oo many leaves"):
        treedef.unflatten([1, 2, 3])


def test_paths_decide_what_is_a_leaf() -> None:
    def below_a(path: Any, node: Any) -> bool:
        return ours.DictKey("a") in path

    tree = {"a": [1, 2], "b": [3]}
    pairs, treedef = ours.tree_flatten_with_path(tree, below_a, is_leaf_takes_path=True)
    assert [(ours.keystr(path), leaf) for path, leaf in pairs] == [
        ("['a']", [1, 2]),
        ("['b'][0]", 3),
    ]
    assert treedef.unflatten([0, 1]) == {"a": 0, "b": [1]}
    named = ours.tree_map_with_path(lambda path, x, y: (ours.keystr(path), x, y), [1], [(2, 3)])
    assert named == [("[0]", 1, (2, 3))]


def test_partial() -> None:
    shown = ours.Partial(pow, 2, mod=5)
    assert ours.tree_leaves(shown) == [2, 5]
    assert str(ours.tree_structure(shown)) == str(
        theirs.tree_structure(theirs.Partial(pow, 2, mod=5))
    )
    tripled = ours.tree_map(lambda leaf: leaf * 3, shown)
    assert type(tripled) is ours.Partial
    assert tripled(2) == pow(6, 2, 15)
    # A partial of a partial keeps the inner arguments out of its leaves.
    nested = ours.Partial(ours.Partial(pow, 2), 3)
    assert ours.tree_leaves(nested) == [3]
    assert nested() == 8
    assert ours.tree_structure(nested) == ours.tree_structure(ours.Partial(nested.func, 7))
    assert pickle.loads(pickle.dumps(shown))(3) == 3


def test_registration_by_methods() -> None:
    @ours.register_pytree_node_class
    class Plain:
        def __init__(self, *parts: Any) -> None:
            self.parts = parts

        def tree_flatten(self) -> Any:
            return (part for part in self.parts), None

        @classmethod
        def tree_unflatten(cls, data: Any, children: Any) -> Any:
            return cls(*children)

    @ours.register_pytree_with_keys_class
    class Keyed(Plain):
        def tree_flatten_with_keys(self) -> Any:
            return [(ours.GetAttrKey(f"part{i}"), part) for i, part in enumerate(self.parts)], None

    tree = [Plain(1, (2,)), Keyed(3, 4)]
    assert ours.tree_leaves(tree) == [1, 2, 3, 4]
    paths = [ours.keystr(path) for path, _ in ours.tree_leaves_with_path(tree)]
    assert paths == ["[0][<flat index 0>]", "[0][<flat index 1>][0]", "[1].part0", "[1].part1"]
    with pytest.raises(ValueError, match="Duplicate custom PyTreeDef type registration"):
        ours.register_pytree_node_class(Plain)
    with pytest.raises(ValueError, match="can't tree-flatten type"):
        ours.flatten_one_level(3)


def test_register_static() -> None:
    @ours.register_static
    @dataclasses.dataclass(frozen=True)
    class Mode:
        name: str

    mode = Mode("fast")
    assert ours.tree_leaves((mode, 1)) == [1]
    assert ours.tree_map(lambda leaf: leaf, (mode, 1))[0] is mode
    assert ours.tree_structure(mode) == ours.tree_structure(Mode("fast"))
    assert ours.tree_structure(mode) != ours.tree_structure(Mode("slow"))


def test_register_dataclass() -> None:
    @ours.register_dataclass
    @dataclasses.dataclass
    class Layer:
        weights: Any
        size: int = stax.tree.static(default=4)

    doubled = ours.tree_map(lambda leaf: leaf * 2, Layer(3))
    assert (doubled.weights, doubled.size) == (6, 4)
    assert [ours.keystr(path) for path, _ in ours.tree_leaves_with_path(Layer(3))] == [".weights"]
    assert ours.tree_structure(Layer(1, 2)) != ours.tree_structure(Layer(1, 3))

    @dataclasses.dataclass
    class Other:
        x: Any
        y: Any

    with pytest.raises(ValueError, match=r"Missing fields: \{'y'\}"):
        ours.register_dataclass(Other, ["x"], [])
    with pytest.raises(ValueError, match="must not overlap"):
        ours.register_dataclass(Other, ["x", "y"], ["x"])
    with pytest.raises(TypeError, match="must both be specified"):
        ours.register_dataclass(Other, ["x", "y"])
    with pytest.raises(TypeError, match="required when nodetype is not a dataclass"):
        ours.register_dataclass(int)
    ours.register_dataclass(Other, ["x"], [], drop_fields=["y"])


def test_a_class_that_only_jax_knows_is_adopted() -> None:
    @theirs.register_pytree_with_keys_class
    class Module:
        def __init__(self, parameters: Any, name: str) -> None:
            self.parameters, self.name = parameters, name

        def tree_flatten_with_keys(self) -> Any:
            return [(theirs.GetAttrKey("parameters"), self.parameters)], self.name

        @classmethod
        def tree_unflatten(cls, name: Any, children: Any) -> Any:
            return cls(*children, name)

    module = Module({"w": 1, "b": None}, "dense")
    tree = [module, theirs.Partial(max, 2)]
    [(path, _), _] = ours.tree_leaves_with_path(tree)
    assert path == (ours.SequenceKey(0), ours.GetAttrKey("parameters"), ours.DictKey("w"))
    assert ours.tree_leaves(tree) == [1, 2]
    mapped = ours.tree_map(lambda leaf: leaf + 1, tree)
    assert type(mapped[0]) is Module
    assert (mapped[0].parameters, mapped[0].name) == ({"w": 2, "b": None}, "dense")
    assert mapped[1](0) == 3
    assert ours.tree_structure(module) != ours.tree_structure(Module({"w": 1, "b": None}, "conv"))
    # A registration of the user's own holds over JAX's.
    ours.register_pytree_node(Module, lambda _: ((), "own"), lambda data, _: data)
    assert ours.tree_map(lambda leaf: leaf, module) == "own"


def test_the_short_names_are_those_of_jax_tree() -> None:
    for name in vars(jax.tree):
        if not name.startswith("_"):
            assert callable(getattr(stax.tree, name)), name
    assert stax.tree.map(lambda leaf: leaf + 1, {"a": 1}) == {"a": 2}


def test_the_long_names_are_those_of_jax_tree_util() -> None:
    missing = {name for name in vars(theirs) if not name.startswith("_")} - set(ours.__all__)
    # A registry object is not offered: ours is a part of optree's.
    assert missing == {"default_registry"}


def test_the_examples_in_the_docstrings() -> None:
    for module in (stax.tree, stax.tree_nodes):
        found = doctest.testmod(module)
        assert found.attempted
        assert not found.failed
