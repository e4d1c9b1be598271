"""Extension modules of SciPy without the packages around them, which take a while to import.

It is the same module: an import of the package finds it afterwards.
"""

from __future__ import annotations

import functools
import importlib.machinery
import importlib.util
from pathlib import Path
from types import ModuleType

import scipy


@functools.cache
def extension(name: str) -> ModuleType:
    """Import `scipy.<name>`, which is in C: by itself, or with its package if it needs that."""
    *folders, _ = name.split(".")
    loader = importlib.machinery.ExtensionFileLoader
    finder = importlib.machinery.FileFinder(
        str(Path(scipy.__file__).parent.joinpath(*folders)),
        (loader, importlib.machinery.EXTENSION_SUFFIXES),
    )
    spec = finder.find_spec(f"scipy.{name}")
    if spec is None or spec.loader is None:
        return importlib.import_module(f"scipy.{name}")
    try:
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    except ImportError:
        return importlib.import_module(f"scipy.{name}")
    return module
