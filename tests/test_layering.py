"""The architecture, checked: who imports whom, how long things are, what they are called.

Every module under stax/ is parsed, none is imported. A module imports from rows above its own in
LAYERS and from its own row, and no two modules import each other, directly or around a circle.
"""

import ast
import functools
import graphlib
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "stax"

# From the bottom up; a folder stands for all its modules. A new module is given a row here.
LAYERS = (
    (
        "config",
        "errors",
        "extent",
        "types",
        "tree_nodes",
        "tree",
        "source",
        "device",
        "capsule",
        "extensions",
        "named_axes",
    ),
    ("op", "graph", "printer", "verify"),
    ("trace", "surroundings"),
    ("operators",),
    ("array", "interpreters"),
    ("control", "custom"),
    ("lowering",),
    ("runtime",),
    ("api",),
    (
        "numpy",
        "lax",
        "nn",
        "random",
        "scipy",
        "image",
        "ops",
        "tree_util",
        "dtypes",
        "debug",
        "experimental",
        "dlpack",
        "flatten_util",
        "extend",
        "custom_batching",
        "ad_checkpoint",
        "checkpoint_policies",
        "custom_derivatives",
        "test_util",
        "experimental",
        "stages",
        "typing",
    ),
    ("inspect",),
    ("__init__",),
    ("compare", "__main__"),
)
ROWS = {unit: row for row, units in enumerate(LAYERS) for unit in units}
FILE_LIMIT = 600
FUNCTION_LIMIT = 60
# A file of this name collects what nobody found a place for.
SHAPELESS = {"utils", "util", "helpers", "helper", "common", "misc"}
FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def name_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


SOURCES = {name_of(path): path.read_text() for path in sorted(PACKAGE.rglob("*.py"))}
PACKAGES = {name_of(path) for path in PACKAGE.rglob("__init__.py")}


def unit_of(module: str) -> str:
    """The entry of LAYERS that a module belongs to; the package's own file is __init__."""
    return [*module.split("."), "__init__"][1]


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


def imports_of(tree: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """The imports that run, without those for annotations only."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif is_type_checking(node):
            assert isinstance(node, ast.If)
            for statement in node.orelse:
                yield from imports_of(ast.Module([statement], []))
        else:
            yield from imports_of(node)


def targets_of(
    node: ast.Import | ast.ImportFrom, module: str, modules: set[str], packages: set[str]
) -> Iterator[str]:
    """The modules an import names; `from stax import graph` names stax.graph."""
    if isinstance(node, ast.Import):
        yield from [alias.name for alias in node.names]
        return
    base = node.module or ""
    if node.level:
        parents = (module if module in packages else module.rpartition(".")[0]).split(".")
        base = ".".join([*parents[: len(parents) - node.level + 1], *filter(None, [base])])
    for alias in node.names:
        inner = f"{base}.{alias.name}"
        is_module = inner in modules or any(name.startswith(f"{inner}.") for name in modules)
        yield inner if is_module else base


def check_import(module: str, target: str) -> str | None:
    """Say what is wrong with `module` importing `target`, if anything is."""
    top = target.split(".")[0]
    if top in ("jax", "jaxlib") and unit_of(module) != "compare":
        return f"imports {target}; only stax.compare may look at JAX"
    if top != "stax" or unit_of(module) not in ROWS or unit_of(target) == unit_of(module):
        return None
    if unit_of(target) not in ROWS:
        return f"imports {target}, which has no row in LAYERS"
    if ROWS[unit_of(target)] > ROWS[unit_of(module)]:
        return f"imports {target}, which is in a layer above its own"
    return None


def check_functions(tree: ast.AST) -> Iterator[str]:
    nodes = list(ast.walk(tree))
    imports = [node.lineno for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    for node in nodes:
        if not isinstance(node, FUNCTIONS):
            continue
        name = getattr(node, "name", "lambda")
        lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
        if len(lines) > FUNCTION_LIMIT:
            yield f"{name} has {len(lines)} lines, the limit is {FUNCTION_LIMIT}"
        if any(line in lines for line in imports):
            yield f"{name} imports inside a function"


parsed = functools.cache(ast.parse)


def problems(module: str, source: str, modules: set[str], packages: set[str]) -> list[str]:
    """Every rule that `source` breaks as the module of that name."""
    tree = parsed(source)
    found = []
    if unit_of(module) not in ROWS:
        found.append("has no row in LAYERS: give it one")
    if SHAPELESS & set(module.split(".")):
        found.append("has a name that says nothing: name the concept it holds")
    if not ast.get_docstring(tree):
        found.append("has no docstring")
    if (length := len(source.splitlines())) > FILE_LIMIT:
        found.append(f"has {length} lines, the limit is {FILE_LIMIT}")
    for node in imports_of(tree):
        if node.names[0].name == "*":
            found.append("has a star import")
        targets = targets_of(node, module, modules, packages)
        found += filter(None, [check_import(module, target) for target in targets])
    return found + list(check_functions(tree))


def import_graph(sources: dict[str, str], packages: set[str]) -> dict[str, set[str]]:
    """Who imports whom when the modules are executed."""
    modules = set(sources)
    return {
        module: {
            target
            for node in imports_of(parsed(source))
            for target in targets_of(node, module, modules, packages)
            if target in modules and target != module
        }
        for module, source in sources.items()
    }


@pytest.mark.parametrize("module", SOURCES)
def test_module(module: str) -> None:
    assert problems(module, SOURCES[module], set(SOURCES), PACKAGES) == []


def test_no_circles() -> None:
    graphlib.TopologicalSorter(import_graph(SOURCES, PACKAGES)).prepare()


BAD = {
    "import jax.numpy as jnp": "only stax.compare may look at JAX",
    "try:\n    from jaxlib import xla\nexcept ImportError:\n    pass": "may look at JAX",
    "from stax.api import jit": "imports stax.api, which is in a layer above its own",
    "from stax import api": "imports stax.api, which is in a layer above its own",
    "from . import api": "imports stax.api, which is in a layer above its own",
    "from .lowering.fuse import fuse": "imports stax.lowering.fuse, which is in a layer above",
    "import stax": "imports stax, which is in a layer above its own",
    "from stax.trace import *": "star import",
    "from stax.nowhere import x": "imports stax.nowhere, which has no row",
    "def f():\n    import math": "f imports inside a function",
    "class A:\n    async def f(self):\n        from math import pi": "f imports inside a function",
    "def f():\n" + "    x = 1\n" * 60: "f has 61 lines, the limit is 60",
    "x = 1\n" * 600: "has 601 lines, the limit is 600",
}


@pytest.mark.parametrize("code", BAD)
def test_the_check_can_fail(code: str) -> None:
    modules = {"stax", "stax.api", "stax.graph", "stax.lowering.fuse", "stax.trace"}
    found = problems("stax.graph", '"""A module."""\n' + code, modules, {"stax"})
    assert any(BAD[code] in problem for problem in found), found


def test_the_check_of_names_and_docstrings_can_fail() -> None:
    assert problems("stax.graph", "x = 1", set(), set()) == ["has no docstring"]
    [row, name] = problems("stax.utils", '"""A module."""', set(), set())
    assert "no row" in row
    assert "says nothing" in name


def test_what_is_allowed() -> None:
    code = '''
        """A module."""
        import numpy as np
        from stax.errors import ShapeError
        from stax import types
        from typing import TYPE_CHECKING
        if TYPE_CHECKING:
            from stax.api import jit
    '''
    lines = "\n".join(line.strip() for line in code.strip().splitlines())
    source = lines.replace("\nfrom stax.api", "\n    from stax.api")
    assert problems("stax.graph", source, {"stax.api", "stax.types"}, {"stax"}) == []
    assert problems("stax.compare.run", '"""A module."""\nimport jax', set(), set()) == []


def test_the_check_of_circles_can_fail() -> None:
    sources = {"stax.types": "from stax import errors", "stax.errors": "from stax.types import x"}
    with pytest.raises(graphlib.CycleError):
        graphlib.TopologicalSorter(import_graph(sources, set())).prepare()
