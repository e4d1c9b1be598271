"""A function in a user's file as a program of the comparison.

The file is written for JAX or for Stax and is run once for each: in its own code `import jax` and
`import stax` both mean the library of the side that it is run for, whatever follows the name
(`import jax.numpy as jnp`, `from jax import lax`).  Modules that the file imports are not changed.

    def loss(w, x): ...              the function that is compared
    def example_args():              beside it: a tuple of its arguments; for one argument, itself
        return w, x
"""

from __future__ import annotations

import builtins
import importlib
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from stax.compare.programs import Program, Workload

LIBRARIES = ("jax", "stax")
EXAMPLE = "example_args"


class NoProgram(Exception):
    """A target cannot be compared; the message says why and what to do."""


def own_program(target: str, gradient: bool, tolerance: float) -> Program:
    """Return the program that `path/to/file.py:function` names.

    With `gradient`, it is the function's gradient in its first argument.  Raises NoProgram if the
    file, the function or the example arguments are missing, or if one of them raises.
    """
    path, name = _parts(target)
    source = _source(path)
    jax = importlib.import_module("jax")
    arguments = _arguments(_loaded(path, source, jax), path, name, jax)

    def make(library: Any) -> Workload:
        function = getattr(_loaded(path, source, library), name)
        return (library.grad(function) if gradient else function), arguments

    title = f"gradient of {name} in {path.name}" if gradient else f"{name} in {path.name}"
    return Program(name, title, make, tolerance=tolerance)


def own_function(target: str, gradient: bool) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Return the function that `path/to/file.py:function` names for Stax, and its arguments.

    With `gradient`, it is the function's gradient in its first argument; raises as `own_program`.
    """
    path, name = _parts(target)
    stax = importlib.import_module("stax")
    module = _loaded(path, _source(path), stax)
    arguments = _arguments(module, path, name, stax)
    function = getattr(module, name)
    return (stax.grad(function) if gradient else function), arguments


def _parts(target: str) -> tuple[Path, str]:
    file, colon, name = target.rpartition(":")
    if not colon or not file or not name.isidentifier():
        raise NoProgram(
            f"{target!r} names no function; write path/to/file.py:function, the function by its "
            "name in the file."
        )
    return Path(file), name


def _source(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise NoProgram(f"cannot read {path}: {reason}.") from None


def _loaded(path: Path, source: str, library: Any) -> ModuleType:
    """Run the file for `library` and return its module."""
    module = ModuleType(path.stem)
    module.__file__ = str(path)
    module.__dict__["__builtins__"] = {**vars(builtins), "__import__": _importer(library)}
    try:
        exec(compile(source, str(path), "exec"), module.__dict__)
    except Exception as error:
        side = library.__name__
        raise NoProgram(f"{path} raises when it is run for {side}: {_line(error, path)}") from error
    return module


def _importer(library: Any) -> Callable[..., Any]:
    """Return an `__import__` for which both libraries are `library`."""

    def import_(
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> Any:
        top, _, rest = name.partition(".")
        if level or top not in LIBRARIES:
            return builtins.__import__(name, globals, locals, fromlist or (), level)
        inner = importlib.import_module(f"{library.__name__}.{rest}") if rest else library
        return inner if fromlist else library

    return import_


def _arguments(module: ModuleType, path: Path, name: str, library: Any) -> tuple[Any, ...]:
    """Return the example arguments with NumPy arrays for leaves, the same bits for both sides.

    `library` is the one that the module is run for.
    """
    functions = [n for n, value in vars(module).items() if callable(value) and n[:1] != "_"]
    if name not in functions:
        known = ", ".join(n for n in functions if n != EXAMPLE) or "none"
        raise NoProgram(f"{path} has no function {name!r}; it has {known}.")
    if EXAMPLE not in functions:
        raise NoProgram(
            f"{path} has no example arguments for {name}; write beside it\n"
            f"    def {EXAMPLE}():\n        return ...  # a tuple of the arguments of {name}"
        )
    try:
        given = getattr(module, EXAMPLE)()
    except Exception as error:
        raise NoProgram(f"{EXAMPLE}() in {path} raises: {_line(error, path)}") from error
    given = given if isinstance(given, tuple) else (given,)
    arguments: tuple[Any, ...] = library.tree_util.tree_map(_numpy, given)
    return arguments


def _numpy(leaf: Any) -> Any:
    return np.asarray(leaf) if hasattr(leaf, "__array__") else leaf


def _line(error: BaseException, path: Path) -> str:
    """Return an exception in one line, with the line of the file that it comes from."""
    lines = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path)]
    first = (str(error).splitlines() or [""])[0]
    where = f" (line {lines[-1].lineno}: {lines[-1].line})" if lines else ""
    if isinstance(error, SyntaxError):
        first, where = str(error.msg), f" (line {error.lineno})"
    return f"{type(error).__name__}: {first}{where}"
