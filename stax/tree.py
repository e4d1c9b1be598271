"""Pytrees: nested containers seen as a flat list of leaves and a hashable structure.

Every transform takes and returns ordinary Python containers; this module is where they are taken
apart and put together again. Its one idea: optree does the traversal, in a registry of our own,
and a thin `TreeDef` around optree's structure makes the behaviour JAX's. The differences are few
and all are here: deques and struct sequences are leaves, dictionaries come back in sorted order,
a class that only JAX knows is adopted when JAX is already imported, and errors name the key path.

    >>> leaves, treedef = tree_flatten({'b': (1, 2), 'a': None})
    >>> leaves, treedef
    ([1, 2], PyTreeDef({'a': None, 'b': (*, *)}))
    >>> treedef.unflatten([x * 10 for x in leaves])
    {'a': None, 'b': (10, 20)}

The names without `tree_` at the end of the module (`map`, `leaves`, ...) are those of jax.tree;
they hide builtins, so the module itself spells those as `builtins.map`.
"""

import builtins
import dataclasses
import functools
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, NoReturn, TypeVar

import optree

from stax.tree_nodes import (
    NAMESPACE,
    DictKey as DictKey,
    FlattenedIndexKey as FlattenedIndexKey,
    GetAttrKey as GetAttrKey,
    KeyEntry as KeyEntry,
    KeyPath as KeyPath,
    Partial as Partial,
    SequenceKey as SequenceKey,
    adopt_from_jax,
    flatten_one_level,
    flatten_one_level_with_keys,
    is_registered,
    is_tree_node as is_tree_node,
    keystr,
    node_type,
    register_dataclass as register_dataclass,
    register_pytree_node as register_pytree_node,
    register_pytree_node_class as register_pytree_node_class,
    register_pytree_with_keys as register_pytree_with_keys,
    register_pytree_with_keys_class as register_pytree_with_keys_class,
    register_static as register_static,
    sort_keys,
    static as static,
)

IsLeaf = Callable[[Any], bool] | None
_T = TypeVar("_T")

_LEAF = optree.PyTreeKind.LEAF
# Structures remembered at once; past that the tables are emptied and fill again.
_REMEMBERED = 4096


class TreeDef:
    """The structure of a pytree: what is left when its leaves are taken out.

    Hashable and compared by structure, node classes and their static data, as a key of compiled
    variants must be. The order in which a dictionary was filled takes no part in it.
    """

    __slots__ = ("_hash", "_ordered", "_spec", "num_leaves")

    num_leaves: int

    def __init__(self, spec: optree.PyTreeSpec) -> None:
        self._spec = spec
        self._hash = hash(spec)
        self._ordered: optree.PyTreeSpec | None = None
        self.num_leaves = spec.num_leaves

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, TreeDef) and self._spec == other._spec)

    def __reduce__(self) -> tuple[Any, ...]:
        return _wrap, (self._spec,)

    @property
    def num_nodes(self) -> int:
        """The number of nodes, leaves included."""
        return self._spec.num_nodes

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        """Put `leaves` back into this structure."""
        # optree returns dictionaries in the order of the first one seen; JAX, and a result that
        # does not depend on what was traced before, ask for sorted keys.
        if self._ordered is None:
            self._ordered = _sort_dicts(self._spec)
        return self._ordered.unflatten(leaves)

    def flatten_up_to(self, tree: Any) -> list[Any]:
        """Flatten `tree`, of which this must be a prefix, into one subtree per leaf of this."""
        leaves, treedef = tree_flatten(tree)
        if treedef == self:
            return leaves
        subtrees: list[Any] = []
        _flatten_up_to(self._spec, tree, subtrees)
        return subtrees

    def children(self) -> list["TreeDef"]:
        """The structures of the root's children."""
        return [_wrap(child) for child in self._spec.children()]

    def compose(self, inner: "TreeDef") -> "TreeDef":
        """The structure in which every leaf of this one is replaced by `inner`."""
        return _wrap(self._spec.compose(inner._spec))

    def node_data(self) -> tuple[type, Any] | None:
        """The class and the static data of the root, or None for a leaf."""
        if self._spec.kind == _LEAF:
            return None
        level = _one_level(self._spec)
        found: tuple[type, Any] = level.walk([None] * level.num_leaves, lambda *node: node[:2])
        return found

    def fold(self, leaf: _T, node: Callable[[type, Any, Sequence[_T]], _T]) -> _T:
        """Combine from the leaves up: `node` is given a class, its static data and its children."""
        return self._spec.walk([leaf] * self.num_leaves, node)

    def __repr__(self) -> str:
        return f"PyTreeDef({self.fold('*', _format_node)})"


PyTreeDef = TreeDef


def _format_node(cls: type, data: Any, children: Sequence[str]) -> str:
    inside = ", ".join(children)
    if cls is type(None):
        return "None"
    if cls is list:
        return f"[{inside}]"
    if cls is tuple:
        return f"({inside},)" if len(children) == 1 else f"({inside})"
    if cls is dict:
        pairs = zip(data, children, strict=True)
        return "{" + ", ".join([f"{key!r}: {child}" for key, child in pairs]) + "}"
    if cls is OrderedDict:
        return f"CustomNode(OrderedDict[{tuple(data)}], [{inside}])"
    if cls is defaultdict:
        return f"CustomNode(defaultdict[({data[0]}, {tuple(data[1])})], [{inside}])"
    if not is_registered(cls):
        return f"CustomNode(namedtuple[{cls.__name__}], [{inside}])"
    return f"CustomNode({cls.__name__}[{data}], [{inside}])"


def _one_level(spec: optree.PyTreeSpec) -> optree.PyTreeSpec:
    level = spec.one_level()
    if level is None:
        raise ValueError("a leaf has no levels")
    return level


def _flatten_up_to(spec: optree.PyTreeSpec, tree: Any, subtrees: list[Any]) -> None:
    if spec.kind == _LEAF:
        subtrees.append(tree)
        return
    # optree's own flatten_up_to lets the kinds of dictionaries stand for each other; JAX does not.
    children, found = optree.tree_flatten(tree, lambda node: node is not tree, namespace=NAMESPACE)
    if found != spec.one_level():
        raise ValueError(f"pytree structure error: expected {TreeDef(spec)}, got {TreeDef(found)}")
    for child_spec, child in zip(spec.children(), children, strict=True):
        _flatten_up_to(child_spec, child, subtrees)


def _sort_dicts(spec: optree.PyTreeSpec) -> optree.PyTreeSpec:
    leaf = optree.treespec_leaf(namespace=NAMESPACE)

    def sort_dict(node: optree.PyTreeSpec) -> optree.PyTreeSpec:
        if node.type is dict:
            children = dict.fromkeys(node.entries(), leaf)
            return optree.treespec_dict(children, namespace=NAMESPACE)
        if node.type is defaultdict:
            children = dict.fromkeys(node.entries(), leaf)
            empty: Any = node.unflatten([None] * node.num_children)
            return optree.treespec_defaultdict(empty.default_factory, children, namespace=NAMESPACE)
        return node

    return spec.transform(sort_dict)


# Structures of built-in containers with string keys, to their one TreeDef. Others are not shared:
# equal is not identical for static data and keys (1 == True), and the data may be large.
_PLAIN: dict[optree.PyTreeSpec, TreeDef] = {}
# Hashes of the others that were examined. optree's hash depends on the kinds of the nodes and not
# on their static data, so that this keeps no data alive.
_EXAMINED: set[int] = set()


def tree_flatten(tree: Any, is_leaf: IsLeaf = None) -> tuple[list[Any], TreeDef]:
    """Flatten a pytree into its leaves and its structure."""
    leaves, spec = optree.tree_flatten(tree, is_leaf, namespace=NAMESPACE)
    if adopt_from_jax(leaves):
        return tree_flatten(tree, is_leaf)
    treedef = _PLAIN.get(spec) or _treedef(spec)
    if treedef is None:
        return tree_flatten(tree, lambda node: _is_leaf_container(node) or _holds(is_leaf, node))
    return leaves, treedef


def _holds(is_leaf: IsLeaf, node: Any) -> bool:
    return is_leaf is not None and is_leaf(node)


def _treedef(spec: optree.PyTreeSpec) -> TreeDef | None:
    """Wrap a structure; None if it takes apart what JAX takes as a leaf."""
    if hash(spec) in _EXAMINED:
        return TreeDef(spec)
    plain = True
    leaf_container = False

    def visit(cls: type, data: Any, children: Any) -> None:
        nonlocal plain, leaf_container
        plain = plain and _has_text_keys(cls, data) and not is_registered(cls)
        leaf_container = leaf_container or cls is deque or _is_leaf_struct_sequence(cls)

    spec.walk([None] * spec.num_leaves, visit)
    if leaf_container:
        return None
    return _remember(spec, plain)


def _remember(spec: optree.PyTreeSpec, plain: bool) -> TreeDef:
    for table in (_PLAIN, _EXAMINED):
        if len(table) >= _REMEMBERED:
            table.clear()
    if not plain:
        _EXAMINED.add(hash(spec))
        return TreeDef(spec)
    # setdefault, so that two threads end with one object.
    return _PLAIN.setdefault(spec, TreeDef(spec))


def _wrap(spec: optree.PyTreeSpec) -> TreeDef:
    """Wrap a structure made of structures that were wrapped before."""
    return _PLAIN.get(spec) or TreeDef(spec)


def _has_text_keys(cls: type, data: Any) -> bool:
    if cls is not dict and cls is not defaultdict and cls is not OrderedDict:
        return True
    keys = data[1] if cls is defaultdict else data
    if builtins.all([type(key) is str for key in keys]):
        return True
    if cls is not OrderedDict:
        # optree sorts what has no order by the names of the types; JAX refuses.
        sort_keys(keys)
    return False


def _is_leaf_container(node: Any) -> bool:
    return type(node) is deque or _is_leaf_struct_sequence(type(node))


def _is_leaf_struct_sequence(cls: type) -> bool:
    return optree.is_structseq_class(cls) and not is_registered(cls)


def tree_unflatten(treedef: TreeDef, leaves: Iterable[Any]) -> Any:
    """Put `leaves` into the structure `treedef`."""
    return treedef.unflatten(leaves)


def tree_leaves(tree: Any, is_leaf: IsLeaf = None) -> list[Any]:
    """The leaves of a pytree, in order."""
    return tree_flatten(tree, is_leaf)[0]


def tree_structure(tree: Any, is_leaf: IsLeaf = None) -> TreeDef:
    """The structure of a pytree."""
    return tree_flatten(tree, is_leaf)[1]


def tree_map(f: Callable[..., Any], tree: Any, *rest: Any, is_leaf: IsLeaf = None) -> Any:
    """Apply `f` to the leaves of `tree` and the subtrees of `rest` at the same places."""
    leaves, treedef = tree_flatten(tree, is_leaf)
    columns = [_match(treedef, tree, other, is_leaf, "tree_map tree") for other in rest]
    return treedef.unflatten([f(*row) for row in zip(leaves, *columns, strict=True)])


def _match(treedef: TreeDef, tree: Any, other: Any, is_leaf: IsLeaf, name: str) -> list[Any]:
    try:
        return treedef.flatten_up_to(other)
    except ValueError as error:
        _raise_prefix_error(tree, other, is_leaf, name, error)


def _raise_prefix_error(
    prefix_tree: Any, full_tree: Any, is_leaf: IsLeaf, name: str, error: ValueError
) -> NoReturn:
    for describe in prefix_errors(prefix_tree, full_tree, is_leaf):
        raise describe(name) from None
    raise error


def tree_reduce(
    function: Callable[[Any, Any], Any],
    tree: Any,
    initializer: Any = dataclasses.MISSING,
    is_leaf: IsLeaf = None,
) -> Any:
    """Combine the leaves from left to right, as functools.reduce does."""
    leaves = tree_leaves(tree, is_leaf)
    if initializer is dataclasses.MISSING:
        return functools.reduce(function, leaves)
    return functools.reduce(function, leaves, initializer)


def tree_reduce_associative(
    operation: Callable[[Any, Any], Any],
    tree: Any,
    *,
    identity: Any = dataclasses.MISSING,
    is_leaf: IsLeaf = None,
) -> Any:
    """Combine the leaves in a balanced tree, which rounds less than from left to right."""
    leaves = tree_leaves(tree, is_leaf)
    if not leaves and identity is dataclasses.MISSING:
        raise TypeError("Must specify identity for parallel reduction of empty sequence.")
    return _halve(operation, leaves) if leaves else identity


def _halve(operation: Callable[[Any, Any], Any], values: list[Any]) -> Any:
    if len(values) == 1:
        return values[0]
    middle = len(values) // 2
    return operation(_halve(operation, values[:middle]), _halve(operation, values[middle:]))


def tree_all(tree: Any, *, is_leaf: IsLeaf = None) -> bool:
    """Whether every leaf is true."""
    return builtins.all(tree_leaves(tree, is_leaf))


def tree_transpose(
    outer_treedef: TreeDef, inner_treedef: TreeDef | None, pytree_to_transpose: Any
) -> Any:
    """Turn a tree of trees inside out: structure `outer` of `inner` to `inner` of `outer`."""
    flat, treedef = tree_flatten(pytree_to_transpose)
    if inner_treedef is None:
        inner_treedef = tree_structure(outer_treedef.flatten_up_to(pytree_to_transpose)[0])
    inner_size = inner_treedef.num_leaves
    if treedef.num_leaves != inner_size * outer_treedef.num_leaves:
        raise TypeError(f"Mismatch\n{treedef}\n != \n{outer_treedef.compose(inner_treedef)}")
    columns = [flat[index::inner_size] for index in range(inner_size)]
    return inner_treedef.unflatten([outer_treedef.unflatten(column) for column in columns])


def tree_flatten_with_path(
    tree: Any, is_leaf: Callable[..., bool] | None = None, is_leaf_takes_path: bool = False
) -> tuple[list[tuple[KeyPath, Any]], TreeDef]:
    """Flatten a pytree into pairs of key path and leaf, and its structure."""
    pairs: list[tuple[KeyPath, Any]] = []
    stops: list[bool] = []

    def stop(path: KeyPath, node: Any) -> bool:
        if is_leaf is None:
            return False
        return is_leaf(path, node) if is_leaf_takes_path else is_leaf(node)

    def visit(path: KeyPath, node: Any) -> None:
        leaf = stop(path, node) or node_type(node) is None
        stops.append(leaf)
        if leaf:
            pairs.append((path, node))
            return
        for key, child in flatten_one_level_with_keys(node)[0]:
            visit((*path, key), child)

    visit((), tree)
    # optree asks in the same order, so what was decided above is replayed and not asked again.
    replay = iter(stops)
    spec = optree.tree_structure(tree, lambda _: next(replay), namespace=NAMESPACE)
    return pairs, _wrap(spec)


def tree_leaves_with_path(
    tree: Any, is_leaf: Callable[..., bool] | None = None, is_leaf_takes_path: bool = False
) -> list[tuple[KeyPath, Any]]:
    """Flatten a pytree into pairs of key path and leaf."""
    return tree_flatten_with_path(tree, is_leaf, is_leaf_takes_path)[0]


generate_key_paths = tree_leaves_with_path


def tree_map_with_path(
    f: Callable[..., Any],
    tree: Any,
    *rest: Any,
    is_leaf: Callable[..., bool] | None = None,
    is_leaf_takes_path: bool = False,
) -> Any:
    """Apply `f` to the key path and the leaf, and the subtrees of `rest` at the same places."""
    pairs, treedef = tree_flatten_with_path(tree, is_leaf, is_leaf_takes_path)
    plain_is_leaf = None if is_leaf_takes_path else is_leaf
    name = "tree_map_with_path tree"
    columns = [_match(treedef, tree, other, plain_is_leaf, name) for other in rest]
    rows = zip(pairs, *columns, strict=True)
    return treedef.unflatten([f(*pair, *others) for pair, *others in rows])


class _Mismatch(NamedTuple):
    """How the roots of two trees differ: in a word, each in its own words, and what follows."""

    what: str
    first: str
    second: str
    detail: str


def _root_mismatch(first: Any, second: Any) -> _Mismatch | None:
    if type(first) is not type(second):
        detail = "their Python types differ"
        return _Mismatch("different types", str(type(first)), str(type(second)), detail)
    name = type(first).__name__
    if isinstance(first, list | tuple) and len(first) != len(second):
        lengths = f"{name} of length {len(first)}", f"{name} of length {len(second)}"
        return _Mismatch(f"different lengths of {name}", *lengths, "the lengths do not match")
    keyed, other_keyed = flatten_one_level_with_keys(first), flatten_one_level_with_keys(second)
    if len(keyed[0]) != len(other_keyed[0]):
        counts = [f"{type(first)} with {_count_children(node[0])}" for node in (keyed, other_keyed)]
        detail = "the numbers of children do not match" + _key_difference(keyed[0], other_keyed[0])
        return _Mismatch("different numbers of pytree children", counts[0], counts[1], detail)
    if keyed[1] != other_keyed[1]:
        data = [f"{type(first)} with pytree metadata {node[1]}" for node in (keyed, other_keyed)]
        detail = "the pytree node metadata does not match"
        return _Mismatch("different pytree metadata", data[0], data[1], detail)
    return None


def _count_children(children: Sequence[Any]) -> str:
    return "1 child" if len(children) == 1 else f"{len(children)} children"


def _key_difference(first: Sequence[Any], second: Sequence[Any]) -> str:
    only_first, only_second = (
        [str(key) for key, _ in keyed if key not in [other for other, _ in others]]
        for keyed, others in ((first, second), (second, first))
    )
    parts = [
        f"; only {which} has {', '.join(keys)}"
        for which, keys in (("the first", only_first), ("the second", only_second))
        if keys
    ]
    return "".join(parts)


def _is_strict_leaf(tree: Any, is_leaf: IsLeaf) -> bool:
    return _holds(is_leaf, tree) or node_type(tree) is None


def _paired_children(first: Any, second: Any) -> Iterator[tuple[KeyEntry, Any, Any]]:
    keyed = flatten_one_level_with_keys(first)[0]
    for (key, child), other in zip(keyed, flatten_one_level(second)[0], strict=True):
        yield key, child, other


def _prefix_mismatches(
    path: KeyPath, prefix: Any, full: Any, is_leaf: IsLeaf
) -> Iterator[tuple[KeyPath, _Mismatch]]:
    if _is_strict_leaf(prefix, is_leaf):
        return
    if mismatch := _root_mismatch(prefix, full):
        yield path, mismatch
        return
    for key, child, other in _paired_children(prefix, full):
        yield from _prefix_mismatches((*path, key), child, other, is_leaf)


def prefix_errors(
    prefix_tree: Any, full_tree: Any, is_leaf: IsLeaf = None
) -> list[Callable[[str], ValueError]]:
    """List why `prefix_tree` is no prefix: functions from the tree's name to the error."""

    def describe(path: KeyPath, mismatch: _Mismatch, name: str) -> ValueError:
        what, first, second, detail = mismatch
        return ValueError(
            f"pytree structure error: {what} at key path\n"
            f"    {name}{keystr(path)}\n"
            f"At that key path, the prefix pytree {name} has\n"
            f"    {first}\n"
            f"but the full pytree has\n"
            f"    {second}\n"
            f"so {detail}."
        )

    found = _prefix_mismatches((), prefix_tree, full_tree, is_leaf)
    return [functools.partial(describe, path, mismatch) for path, mismatch in found]


def equality_errors(
    tree1: Any, tree2: Any, is_leaf: IsLeaf = None
) -> Iterator[tuple[KeyPath, str, str, str]]:
    """List where two structures differ: key path, each side in words, and an explanation."""
    yield from _equality_errors((), tree1, tree2, is_leaf)


def _equality_errors(
    path: KeyPath, first: Any, second: Any, is_leaf: IsLeaf
) -> Iterator[tuple[KeyPath, str, str, str]]:
    if _is_strict_leaf(first, is_leaf) and _is_strict_leaf(second, is_leaf):
        return
    if mismatch := _root_mismatch(first, second):
        yield path, mismatch.first, mismatch.second, mismatch.detail
        return
    for key, child, other in _paired_children(first, second):
        yield from _equality_errors((*path, key), child, other, is_leaf)


def broadcast_prefix(prefix_tree: Any, full_tree: Any, is_leaf: IsLeaf = None) -> list[Any]:
    """Repeat each leaf of `prefix_tree` for the leaves of `full_tree` below the same place."""
    leaves, treedef = tree_flatten(prefix_tree, is_leaf)
    name = "broadcast_prefix prefix_tree"
    subtrees = _match(treedef, prefix_tree, full_tree, is_leaf, name)
    repeated = [
        [leaf] * tree_structure(subtree).num_leaves
        for leaf, subtree in zip(leaves, subtrees, strict=True)
    ]
    return [leaf for leaves in repeated for leaf in leaves]


def tree_broadcast(prefix_tree: Any, full_tree: Any, is_leaf: IsLeaf = None) -> Any:
    """Fill the structure of `full_tree` with the leaves of `prefix_tree`."""
    return tree_structure(full_tree).unflatten(broadcast_prefix(prefix_tree, full_tree, is_leaf))


def treedef_is_leaf(treedef: TreeDef) -> bool:
    """Whether the structure is a single node, which is a leaf or an empty container."""
    return treedef.num_nodes == 1


def treedef_tuple(treedefs: Iterable[TreeDef]) -> TreeDef:
    """Return the structure of a tuple of trees of these structures."""
    specs = [treedef._spec for treedef in treedefs]
    return _wrap(optree.treespec_tuple(specs, namespace=NAMESPACE))


def treedef_children(treedef: TreeDef) -> list[TreeDef]:
    """Return the structures of the root's children."""
    return treedef.children()


def build_tree(treedef: TreeDef, xs: Any) -> Any:
    """Build a tree of structure `treedef` from iterables nested in the same way."""
    return _build(treedef._spec, xs)


def _build(spec: optree.PyTreeSpec, xs: Any) -> Any:
    if spec.kind == _LEAF:
        return xs
    children = [_build(child, x) for child, x in zip(spec.children(), xs, strict=True)]
    return TreeDef(_one_level(spec)).unflatten(children)


def all_leaves(iterable: Iterable[Any], is_leaf: IsLeaf = None) -> bool:
    """Whether every element is a leaf."""
    return builtins.all([_is_strict_leaf(item, is_leaf) for item in iterable])


all = tree_all
broadcast = tree_broadcast
flatten = tree_flatten
flatten_with_path = tree_flatten_with_path
leaves = tree_leaves
leaves_with_path = tree_leaves_with_path
map = tree_map
map_with_path = tree_map_with_path
reduce = tree_reduce
reduce_associative = tree_reduce_associative
structure = tree_structure
transpose = tree_transpose
unflatten = tree_unflatten
