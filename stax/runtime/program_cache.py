"""Compiled programs on disk, by the graphs that they come from: nothing is lowered a second time.

The one idea: a graph is written out whole, with every parameter of every op.  What cannot be
written so that equal text means equal code, a function of the user's say, means that the program is
not kept.  Beside its graph a program depends on the settings in force, the machine, and the files
of this package: where one of them changes it is another program.

What is kept is object code and what a call needs to know.  Programs whose shapes are open, that
call back to Python, or that are checked while they run, are compiled anew.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass, fields
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np

from stax.config import config
from stax.control import HoldsGraphs
from stax.graph import Graph
from stax.op import Op
from stax.runtime.engine import dependences
from stax.runtime.object_cache import digest, object_cache
from stax.runtime.once import once
from stax.types import ArrayType, KeyType, TupleType


@dataclass(frozen=True)
class KeptProgram:
    """The object code of a program, the slots of the context table that it uses, the scratch memory
    that its caller provides, whether other Python threads run meanwhile, and which results may be
    written over which donated inputs."""

    code: bytes
    slots: tuple[str, ...]
    arena_bytes: int
    release_gil: bool
    taken: tuple[tuple[int, int], ...] = ()


class _NotWritable(Exception):
    """A graph has something that text cannot stand for."""


def name_of(graph: Graph, memory_budget: int | None, donated: Collection[int] = ()) -> str | None:
    """Return the name under which the program of a graph is kept, if it can be."""
    # Whoever has the passes verified wants them to run.
    if object_cache() is None or config.verify or config.check != "none" or config.watches():
        return None
    try:
        text, files = "\n".join(_lines(graph)), _files()
    except (_NotWritable, OSError):  # a package that is not a folder of files
        return None
    options = repr((memory_budget, sorted(donated)))
    return digest(dependences(), files, repr(config.key()), options, text)


def load(name: str) -> KeptProgram | None:
    """Return the program that is kept under a name, if there is one."""
    cache = object_cache()
    data = None if cache is None else cache.load(name)
    if data is None:
        return None
    head, _, code = data.partition(b"\n")
    told = json.loads(head)
    told["slots"], told["taken"] = tuple(told["slots"]), tuple(map(tuple, told["taken"]))
    return KeptProgram(code, **told)


def store(name: str, program: KeptProgram) -> None:
    """Keep a program."""
    cache = object_cache()
    if cache is not None:
        told = {f.name: getattr(program, f.name) for f in fields(program) if f.name != "code"}
        cache.store(name, json.dumps(told).encode() + b"\n" + program.code)


@once
def _files() -> str:
    """What tells this package from another version of it, also while somebody works on it."""
    found, pending = [], [str(Path(__file__).parent.parent)]
    while pending:
        with os.scandir(pending.pop()) as entries:
            for entry in entries:
                if entry.name.endswith(".py"):
                    status = entry.stat()
                    found.append((entry.path, status.st_size, status.st_mtime_ns))
                elif entry.is_dir() and entry.name != "__pycache__":
                    pending.append(entry.path)
    if not found:
        raise FileNotFoundError
    return repr(sorted(found))


# --- a graph as text ---


def _lines(graph: Graph) -> Iterator[str]:
    position: dict[Any, int] = {}
    for node in graph.inputs:
        position[node] = len(position)
        yield _type(node.type)
    for node in graph.nodes:
        yield f"{_op(node.op)} {[position[x] for x in node.inputs]} {_type(node.type)}"
        position[node] = len(position)
    yield f"return {[position[x] for x in graph.outputs]}"


def _op(op: Op) -> str:
    if isinstance(op, HoldsGraphs) and op.applied is not None:
        return f"{_class(op)} {_written(op.applied)}"
    if op.effect is not None:
        raise _NotWritable
    parameters = [_written(value) for value in op.parameters().values()]
    return f"{_class(op)} {op.name} {' '.join(parameters)}"


def _class(value: Any) -> str:
    """Name a class, which must be one of this package for its files to say what it does."""
    kind = type(value)
    if kind.__module__.partition(".")[0] != "stax":
        raise _NotWritable
    return f"{kind.__module__}.{kind.__qualname__}"


@functools.lru_cache(maxsize=4096)
def _type(type_: ArrayType | TupleType) -> str:
    if isinstance(type_, TupleType):
        return f"({', '.join(map(_type, type_.items))})"
    lengths = [_written(n) for n in type_.shape]
    return f"{_written(type_.dtype)}[{' '.join(lengths)}]{type_.weak}"


def _written(value: Any) -> str:
    """Return text that equal values have, and no others."""
    kind = type(value)
    if kind in (int, bool, str, bytes, type(None)):
        return repr(value)
    if kind is float or isinstance(value, np.generic):
        return f"{kind.__name__}:{np.asarray(value).tobytes().hex()}"
    if kind is tuple:
        return f"({' '.join(map(_written, value))})"
    if isinstance(value, np.dtype):
        return f"{value!r}"
    if isinstance(value, KeyType):
        return f"key {value.implementation} {value.words}"
    if isinstance(value, ArrayType | TupleType):
        return _type(value)
    if isinstance(value, Graph):
        return "{\n" + "\n".join(_lines(value)) + "\n}"
    if isinstance(value, Enum):
        return f"{_class(value)}.{value.name}"
    if isinstance(value, tuple):
        return f"{_class(value)}({' '.join(map(_written, value))})"
    raise _NotWritable
