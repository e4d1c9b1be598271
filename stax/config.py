"""Settings that change what a program means or how it is compiled, as contexts.

A setting is read with `config.enable_x64` and set for a block with `with enable_x64(True):`, or for
the whole process with `config.update("enable_x64", True)`.  `config.key()` is what a compiled
variant is specialised on.  Values live in context variables, so threads do not see each other's
blocks.

    >>> with enable_x64(True):
    ...     config.enable_x64
    True
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any


def _flag(name: str, default: bool = False) -> bool:
    return os.environ.get(name, str(int(default))).lower() in ("1", "true", "yes", "on")


class Config:
    """The settings in force; attribute access reads them."""

    def __init__(self, **defaults: Any) -> None:
        self._defaults = defaults
        self._overrides: ContextVar[dict[str, Any] | None] = ContextVar("stax_config", default=None)
        # Compiled functions skip Python only while nothing is overridden in any thread; they
        # listen to how many blocks are open.
        self.active_overrides = 0
        self.listeners: list[Callable[[int], None]] = []
        self._lock = threading.Lock()

    def __getattr__(self, name: str) -> Any:
        overrides = self._overrides.get()
        if overrides is not None and name in overrides:
            return overrides[name]
        try:
            return self.__dict__["_defaults"][name]
        except KeyError:
            raise AttributeError(f"unknown setting {name!r}") from None

    def update(self, name: str, value: Any) -> None:
        """Set `name` for the whole process; names may carry JAX's `jax_` prefix."""
        name = name.removeprefix("jax_")
        self._check(name)
        self._defaults[name] = value
        for listener in self.listeners:
            listener(self.active_overrides)

    @contextmanager
    def override(self, **settings: Any) -> Iterator[None]:
        """Put `settings` in force for a block."""
        for name in settings:
            self._check(name)
        token = self._overrides.set({**(self._overrides.get() or {}), **settings})
        self._count(1)
        try:
            yield
        finally:
            self._overrides.reset(token)
            self._count(-1)

    def _check(self, name: str) -> None:
        if name not in self._defaults:
            raise AttributeError(f"unknown setting {name!r}")

    def _count(self, step: int) -> None:
        with self._lock:
            self.active_overrides += step
        for listener in self.listeners:
            listener(self.active_overrides)

    def key(self) -> tuple[Any, ...]:
        """What a compiled variant depends on."""
        return (self.enable_x64, self.default_matmul_precision, self.numpy_dtype_promotion)


config = Config(
    enable_x64=_flag("STAX_ENABLE_X64"),
    disable_jit=_flag("STAX_DISABLE_JIT"),
    default_matmul_precision=None,
    numpy_dtype_promotion="standard",
    verify=_flag("STAX_VERIFY"),
    strict=_flag("STAX_STRICT"),
    full_traceback=_flag("STAX_FULL_TRACEBACK"),
)


def enable_x64(new_val: bool = True) -> Any:
    """Allow 64-bit values to enter programs, for a `with` block."""
    return config.override(enable_x64=new_val)


def disable_jit(disable: bool = True) -> Any:
    """Run jitted functions eagerly, for a `with` block."""
    return config.override(disable_jit=disable)


def default_matmul_precision(new_val: Any) -> Any:
    """Set the precision of products that name none, for a `with` block."""
    return config.override(default_matmul_precision=new_val)


def numpy_dtype_promotion(new_val: str) -> Any:
    """Choose `"standard"` or `"strict"` dtype promotion, for a `with` block."""
    return config.override(numpy_dtype_promotion=new_val)
