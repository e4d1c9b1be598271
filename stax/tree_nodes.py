"""Which classes are nodes of a pytree, and how each is taken apart and named.

A class that is not registered here is a leaf. The module's one idea: an entry knows how to take
one node apart by one level; optree, told the same, traverses whole trees (see stax.tree). A class
that only JAX knows is adopted when JAX is already imported, so that the modules of flax and equinox
are pytrees here too.

    >>> flatten_one_level_with_keys({'b': 1, 'a': (2, 3)})
    ([(DictKey(key='a'), (2, 3)), (DictKey(key='b'), 1)], ('a', 'b'))
"""

import dataclasses
import functools
import operator
import os
import sys
import threading
import warnings
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

import optree

_Class = TypeVar("_Class", bound=type)
_Flatten = Callable[[Any], tuple[Iterable[Any], Any]]
_Unflatten = Callable[[Any, Any], Any]
_FlattenWithKeys = Callable[[Any], tuple[Iterable[tuple[Any, Any]], Any]]
KeyEntry = Any
KeyPath = tuple[KeyEntry, ...]

# optree's registry is shared by everything in the process; ours is a part of it of this name.
NAMESPACE = "stax"


@dataclasses.dataclass(frozen=True, slots=True)
class SequenceKey:
    """The key of an element of a tuple or a list."""

    idx: int

    def __str__(self) -> str:
        return f"[{self.idx!r}]"


@dataclasses.dataclass(frozen=True, slots=True)
class DictKey:
    """The key of a value in a dictionary."""

    key: Hashable

    def __str__(self) -> str:
        return f"[{self.key!r}]"


@dataclasses.dataclass(frozen=True, slots=True)
class GetAttrKey:
    """The key of an attribute: a field of a dataclass or of a namedtuple."""

    name: str

    def __str__(self) -> str:
        return f".{self.name}"


@dataclasses.dataclass(frozen=True, slots=True)
class FlattenedIndexKey:
    """The key of a child whose class was registered without keys."""

    key: int

    def __str__(self) -> str:
        return f"[<flat index {self.key}>]"


def keystr(keys: KeyPath, *, simple: bool = False, separator: str = "") -> str:
    """Print a key path as Python would spell the access, or plainly when `simple`."""
    return separator.join([_simple_key(key) if simple else str(key) for key in keys])


def _simple_key(key: KeyEntry) -> str:
    match key:
        case SequenceKey(text) | DictKey(text) | GetAttrKey(text) | FlattenedIndexKey(text):
            return str(text)
        case _:
            return str(key)


class NodeType(NamedTuple):
    """How one class is taken apart and put together; for some of Python's own only optree knows."""

    flatten: _Flatten
    keys: Callable[[Any], Iterable[KeyEntry]] | None
    unflatten: _Unflatten | None = None


def _sequence_keys(node: Sequence[Any]) -> list[KeyEntry]:
    return [SequenceKey(index) for index in range(len(node))]


def _dict_keys(node: dict[Any, Any]) -> list[KeyEntry]:
    return [DictKey(key) for key in sort_keys(node)]


def _flatten_dict(node: dict[Any, Any]) -> tuple[Iterable[Any], Any]:
    keys = tuple(sort_keys(node))
    return tuple([node[key] for key in keys]), keys


def _flatten_defaultdict(node: defaultdict[Any, Any]) -> tuple[Iterable[Any], Any]:
    values, keys = _flatten_dict(node)
    return values, (node.default_factory, keys)


def sort_keys(keys: Iterable[Any]) -> list[Any]:
    """Sort the keys of a dictionary, or say why they have no order."""
    try:
        return sorted(keys)
    except TypeError:
        types = sorted({type(key).__name__ for key in keys})
        raise ValueError(
            "Comparator raised exception while sorting pytree dictionary keys. "
            f"The keys are of types {', '.join(types)}, which have no common order; "
            "use keys of one type, or an OrderedDict."
        ) from None


_NODES: dict[type, NodeType] = {
    tuple: NodeType(lambda node: (node, None), _sequence_keys),
    list: NodeType(lambda node: (node, None), _sequence_keys),
    type(None): NodeType(lambda _: ((), None), lambda _: ()),
    dict: NodeType(_flatten_dict, _dict_keys),
    defaultdict: NodeType(
        _flatten_defaultdict,
        _dict_keys,
        lambda data, values: defaultdict(data[0], zip(data[1], values, strict=True)),
    ),
    OrderedDict: NodeType(
        lambda node: (tuple(node.values()), tuple(node)),
        lambda node: [DictKey(key) for key in node],
        lambda keys, values: OrderedDict(zip(keys, values, strict=True)),
    ),
}
_BUILTIN = frozenset(_NODES)
_NAMEDTUPLE = NodeType(
    lambda node: (tuple(node), type(node)),
    lambda node: [GetAttrKey(name) for name in node._fields],
)
_ADOPTED: set[type] = set()
_ADOPTION = threading.Lock()


def _forget_lock() -> None:
    # Another thread may have held it when the process was forked.
    global _ADOPTION
    _ADOPTION = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_lock)


def node_type(tree: Any) -> NodeType | None:
    """How the root of `tree` is taken apart, or None for a leaf."""
    found = _NODES.get(type(tree))
    if found is None and optree.is_namedtuple_instance(tree):
        return _NAMEDTUPLE
    if found is None and adopt_from_jax([tree]):
        return _NODES[type(tree)]
    return found


def node_rules(cls: type) -> NodeType | None:
    """How instances of a class are taken apart; None for named tuples and leaves."""
    return _NODES.get(cls)


def is_registered(cls: type) -> bool:
    """Whether `cls` was registered or adopted, and is not one of Python's own containers."""
    return cls in _NODES and cls not in _BUILTIN


def is_tree_node(typ: type) -> bool:
    """Whether instances of `typ` are nodes: registered, built in, or a namedtuple class."""
    return typ in _NODES or optree.is_namedtuple_class(typ)


def flatten_one_level(tree: Any) -> tuple[Iterable[Any], Any]:
    """Return the children of the root of `tree` and its static data."""
    return _require_node(tree).flatten(tree)


def flatten_one_level_with_keys(tree: Any) -> tuple[list[tuple[KeyEntry, Any]], Any]:
    """Return the children of the root of `tree`, each with its key, and its static data."""
    node = _require_node(tree)
    flattened, data = node.flatten(tree)
    children = tuple(flattened)
    if node.keys is None:
        keys: Iterable[KeyEntry] = [FlattenedIndexKey(index) for index in range(len(children))]
    else:
        keys = node.keys(tree)
    return list(zip(keys, children, strict=True)), data


def _require_node(tree: Any) -> NodeType:
    found = node_type(tree)
    if found is None:
        raise ValueError(f"can't tree-flatten type: {type(tree)}")
    return found


def register_pytree_node(
    nodetype: type,
    flatten_func: _Flatten,
    unflatten_func: _Unflatten,
    flatten_with_keys_func: _FlattenWithKeys | None = None,
) -> None:
    """Make instances of `nodetype` nodes of pytrees.

    `flatten_func` returns the children and static data that compares with ==; `unflatten_func`
    is given the static data and the new children, and must not look at what the children are:
    they may be proxies, `None`, or placeholders.
    """
    keys = None
    if flatten_with_keys_func is not None:
        with_keys = flatten_with_keys_func

        def keys(node: Any) -> list[KeyEntry]:
            return [key for key, _ in with_keys(node)[0]]

    _register(nodetype, flatten_func, unflatten_func, keys)


def _register(
    nodetype: type,
    flatten: _Flatten,
    unflatten: _Unflatten,
    keys: Callable[[Any], Iterable[KeyEntry]] | None,
) -> None:
    if nodetype in _ADOPTED:
        # The user's own registration holds over the one found in JAX.
        optree.unregister_pytree_node(nodetype, namespace=NAMESPACE)
        _ADOPTED.discard(nodetype)
    elif nodetype in _NODES:
        raise ValueError(
            f"Duplicate custom PyTreeDef type registration for {nodetype}: "
            "a class is registered once; remove the second registration."
        )
    with warnings.catch_warnings():
        # optree warns when a namedtuple or struct sequence class gets a rule of its own.
        warnings.simplefilter("ignore", UserWarning)
        optree.register_pytree_node(nodetype, flatten, unflatten, namespace=NAMESPACE)
    _NODES[nodetype] = NodeType(flatten, keys, unflatten)


def register_pytree_node_class(cls: _Class) -> _Class:
    """Register a class by its methods tree_flatten and tree_unflatten; a decorator."""
    register_pytree_node(cls, operator.methodcaller("tree_flatten"), cls.tree_unflatten)  # type: ignore[attr-defined]
    return cls


def register_pytree_with_keys(
    nodetype: type,
    flatten_with_keys: _FlattenWithKeys,
    unflatten_func: _Unflatten,
    flatten_func: _Flatten | None = None,
) -> None:
    """Register a class whose children have keys of their own, for key paths."""

    def without_keys(node: Any) -> tuple[list[Any], Any]:
        keyed, data = flatten_with_keys(node)
        return [child for _, child in keyed], data

    flatten = flatten_func or without_keys
    register_pytree_node(nodetype, flatten, unflatten_func, flatten_with_keys)


def register_pytree_with_keys_class(cls: _Class) -> _Class:
    """Register a class by its methods tree_flatten_with_keys and tree_unflatten; a decorator."""
    flatten = operator.methodcaller("tree_flatten") if hasattr(cls, "tree_flatten") else None
    with_keys = operator.methodcaller("tree_flatten_with_keys")
    register_pytree_with_keys(cls, with_keys, cls.tree_unflatten, flatten)  # type: ignore[attr-defined]
    return cls


def register_static(cls: _Class) -> _Class:
    """Register a hashable class as a node without leaves: static under jit; a decorator."""
    register_pytree_node(
        cls, lambda node: ((), node), lambda node, _: node, lambda node: ((), node)
    )
    return cls


def register_dataclass(
    nodetype: _Class,
    data_fields: Sequence[str] | None = None,
    meta_fields: Sequence[str] | None = None,
    drop_fields: Sequence[str] = (),
) -> _Class:
    """Register a dataclass: data fields are children, meta fields are static data; a decorator.

    Without the lists, fields marked by `static()` are static and all others are data.
    """
    data, meta = _choose_fields(nodetype, data_fields, meta_fields)
    if dataclasses.is_dataclass(nodetype):
        _check_fields(nodetype, data, meta, drop_fields)
    if overlap := set(data) & set(meta):
        raise ValueError(
            f"data_fields and meta_fields must not overlap. Overlapping fields: {overlap}."
        )

    def flatten(node: Any) -> tuple[Iterable[Any], Any]:
        values = tuple([getattr(node, name) for name in data])
        return values, tuple([getattr(node, name) for name in meta])

    def unflatten(values: Any, children: Any) -> Any:
        names = zip(meta + data, (*values, *children), strict=True)
        return nodetype(**dict(names))

    keys = [GetAttrKey(name) for name in data]
    _register(nodetype, flatten, unflatten, lambda _: keys)
    return nodetype


def _choose_fields(
    nodetype: type, data: Sequence[str] | None, meta: Sequence[str] | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if data is not None and meta is not None:
        return tuple(data), tuple(meta)
    if (data is None) != (meta is None):
        raise TypeError(
            "register_dataclass: data_fields and meta_fields must both be specified when either "
            f"is specified. Got data_fields={data!r} meta_fields={meta!r}."
        )
    if not dataclasses.is_dataclass(nodetype):
        raise TypeError(
            "register_dataclass: data_fields and meta_fields are required when nodetype is not a "
            f"dataclass. Got {nodetype=}."
        )
    fields = dataclasses.fields(nodetype)
    is_static = [bool(field.metadata.get("static", False)) for field in fields]
    pairs = list(zip(fields, is_static, strict=True))
    return (
        tuple([field.name for field, static in pairs if not static]),
        tuple([field.name for field, static in pairs if static]),
    )


def _check_fields(
    nodetype: Any, data: tuple[str, ...], meta: tuple[str, ...], drop: Sequence[str]
) -> None:
    expected = {field.name for field in dataclasses.fields(nodetype) if field.init} - set(drop)
    named = {*data, *meta}
    if named == expected:
        return
    message = (
        "data_fields and meta_fields must include all dataclass fields with ``init=True`` "
        "and only them."
    )
    if missing := expected - named:
        message += f" Missing fields: {missing}. Add them to drop_fields to suppress this error."
    if unexpected := named - expected:
        message += f" Unexpected fields: {unexpected}."
    raise ValueError(message)


def static(**kwargs: Any) -> Any:
    """Declare a field of a dataclass that register_dataclass treats as static."""
    metadata = {**(kwargs.pop("metadata", None) or {}), "static": True}
    return dataclasses.field(metadata=metadata, **kwargs)


# Classes that neither we nor JAX take apart, so that a leaf of a known class costs one look-up.
_LEAF_CLASSES: set[type] = set()
_KEY_CLASSES = (SequenceKey, DictKey, GetAttrKey, FlattenedIndexKey)


def adopt_from_jax(leaves: Iterable[Any]) -> bool:
    """Register the classes among `leaves` that JAX takes apart; True if there are any.

    JAX is never imported for this: without it no class can be registered there. A class is asked
    about once, so it must be registered with JAX before its first instance is flattened here.
    """
    jax_tree_util = sys.modules.get("jax.tree_util")
    if jax_tree_util is None or _LEAF_CLASSES.issuperset(map(type, leaves)):
        return False
    # An import of JAX that is still under way has no functions to ask.
    if not hasattr(jax_tree_util, "tree_flatten_with_path"):
        return False
    adopted = False
    for leaf in leaves:
        cls = type(leaf)
        if cls in _LEAF_CLASSES or is_tree_node(cls):
            continue
        if jax_tree_util.all_leaves([leaf]):
            _LEAF_CLASSES.add(cls)
        else:
            _adopt(cls, jax_tree_util)
            adopted = True
    return adopted


def _adopt(cls: type, jax_tree_util: Any) -> None:
    """Register `cls` with JAX's own functions as its rules."""

    def flatten(node: Any) -> tuple[Iterable[Any], Any]:
        # JAX's structure of this one node is its static data: it compares, and it unflattens.
        children, treedef = jax_tree_util.tree_flatten(
            node, is_leaf=lambda child: child is not node
        )
        return children, treedef

    def keys(node: Any) -> list[KeyEntry]:
        with_path = jax_tree_util.tree_flatten_with_path
        children, _ = with_path(node, is_leaf=lambda child: child is not node)
        return [_own_key(path[0]) for path, _ in children]

    with _ADOPTION:
        if cls not in _NODES:
            _register(cls, flatten, lambda treedef, children: treedef.unflatten(children), keys)
            _ADOPTED.add(cls)


def _own_key(key: Any) -> KeyEntry:
    for key_class in _KEY_CLASSES:
        if type(key).__name__ == key_class.__name__:
            field = dataclasses.fields(key_class)[0].name
            return key_class(getattr(key, field))
    return key


class _Boxed:
    """Stands for a functools.partial where functools would merge it into the one around it."""

    def __init__(self, fun: "functools.partial[Any]") -> None:
        self.fun = fun
        self.func, self.args, self.keywords = fun.func, fun.args, fun.keywords

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.fun(*args, **kwargs)

    def __hash__(self) -> int:
        return hash(self.fun)

    def __eq__(self, other: object) -> bool:
        return self.fun == (other.fun if isinstance(other, _Boxed) else other)

    def __repr__(self) -> str:
        return repr(self.fun)


class Partial(functools.partial[Any]):
    """A functools.partial that is a pytree: its arguments are children, its function is static."""

    def __new__(cls, func: Callable[..., Any], /, *args: Any, **keywords: Any) -> "Partial":
        # functools merges a partial of a partial; here it must stay clear which arguments are the
        # children of this node and which belong to the static function.
        if isinstance(func, functools.partial):
            func = _Boxed(func)
        return super().__new__(cls, func, *args, **keywords)


register_pytree_node(
    Partial,
    lambda partial: ((partial.args, partial.keywords), partial.func),
    lambda func, children: Partial(func, *children[0], **children[1]),
)
