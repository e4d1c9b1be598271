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

from stax.errors import ArgumentValueError, UnsupportedError

__version__ = "0.1.0"


_FLAGS = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off"), False),
}


def _refused(name: str, value: str, advice: str) -> ArgumentValueError:
    return ArgumentValueError(
        f"the environment variable {name} cannot be {value!r}.", advice=advice
    )


def flag(name: str, default: bool = False) -> bool:
    """Return what an environment variable says, if it says anything: 1 or 0, or words for it."""
    value = os.environ.get(name, "").lower()
    if value and value not in _FLAGS:
        raise _refused(name, value, f"It is one of {', '.join(_FLAGS)}.")
    return _FLAGS.get(value, default)


def choice(name: str, choices: tuple[str, ...]) -> str:
    """Return which of `choices` an environment variable names, the first if none."""
    value = os.environ.get(name, "").lower() or choices[0]
    if value not in choices:
        raise _refused(name, value, f"It is one of {', '.join(choices)}.")
    return value


def integer(name: str, default: int) -> int:
    """Return the number that an environment variable is, `default` if it is none."""
    value = os.environ.get(name, "") or str(default)
    try:
        return int(value)
    except ValueError:
        raise _refused(name, value, "It is an integer.") from None


# Settings of JAX that have one value here; another one is refused.
FIXED: dict[str, Any] = {
    "debug_key_reuse": False,
    "default_device": None,
    "default_prng_impl": "threefry2x32",
    "enable_custom_prng": False,
    "no_execution": False,
    "no_tracing": False,
    "numpy_rank_promotion": "allow",
    "platform_name": "cpu",
    "platforms": "cpu",
    "threefry_partitionable": True,
}
# Settings of JAX that change no result; any value is accepted and remembered.
IGNORED: dict[str, Any] = {
    "check_tracer_leaks": True,
    "cpu_enable_async_dispatch": False,
    "enable_checks": False,
    "explain_cache_misses": False,
    "log_compiles": False,
    "persistent_cache_min_compile_time_secs": 0.0,
    "persistent_cache_min_entry_size_bytes": 0,
    "softmax_custom_jvp": True,
    "traceback_filtering": "auto",
}
# What compiled programs check while they run: nothing, or that each index lies in its buffer.
CHECKS = ("none", "bounds")
_CHOICES: dict[str, tuple[Any, ...]] = {
    "check": CHECKS,
    "enable_compilation_cache": (True, False),
    "enable_x64": (True, False),
    "disable_jit": (True, False),
    "debug_nans": (True, False),
    "debug_infs": (True, False),
    "numpy_dtype_promotion": ("standard", "strict"),
}


class Config:
    """The settings in force; attribute access reads them.  Names may carry JAX's `jax_` prefix."""

    def __init__(self, **defaults: Any) -> None:
        self._defaults = defaults
        self._overrides: ContextVar[dict[str, Any] | None] = ContextVar("stax_config", default=None)
        # Compiled functions skip Python only while nothing is overridden in any thread; they
        # listen to how many blocks are open.
        self.active_overrides = 0
        self.listeners: list[Callable[[int], None]] = []
        self._lock = threading.Lock()

    def __getattr__(self, name: str) -> Any:
        # Settings of our own are properties, which are faster.
        name = name.removeprefix("jax_")
        if name in self.__dict__.get("_defaults", ()):
            return self._read(name)
        for others in (FIXED, IGNORED):
            if name in others:
                return others[name]
        raise AttributeError(f"unknown setting {name!r}")

    def _read(self, name: str) -> Any:
        overrides = self._overrides.get()
        if overrides is not None and name in overrides:
            return overrides[name]
        return self._defaults[name]

    def read(self, name: str) -> Any:
        """Return the value of the setting `name`; raises AttributeError for an unknown one."""
        return getattr(self, name)

    def update(self, name: str, value: Any) -> None:
        """Set `name` for the whole process.

        Raises AttributeError for an unknown setting, ValueError for a value that it cannot have,
        UnsupportedError where JAX has the value and Stax does not.
        """
        name = name.removeprefix("jax_")
        self._check(name, value)
        if name in IGNORED:
            IGNORED[name] = value
        elif name not in FIXED:
            self._defaults[name] = value
            for listener in self.listeners:
                listener(self.active_overrides)

    @contextmanager
    def override(self, **settings: Any) -> Iterator[None]:
        """Put `settings` in force for a block."""
        for name, value in settings.items():
            self._check(name, value)
        ours = {name: value for name, value in settings.items() if name in self._defaults}
        token = self._overrides.set({**(self._overrides.get() or {}), **ours})
        self._count(1)
        try:
            yield
        finally:
            self._overrides.reset(token)
            self._count(-1)

    def _check(self, name: str, value: Any) -> None:
        if name in FIXED:
            if value is not None and value != FIXED[name]:
                raise UnsupportedError(
                    f"the setting {name}={value!r} of JAX is not supported.",
                    advice=f"It is {FIXED[name]!r} here, whatever the program.",
                )
        elif name not in self._defaults and name not in IGNORED:
            raise AttributeError(f"unknown setting {name!r}")
        if name in _CHOICES and value not in _CHOICES[name]:
            raise ArgumentValueError(
                f"the setting {name} cannot be {value!r}.",
                advice=f"It is one of {', '.join(map(repr, _CHOICES[name]))}.",
            )

    def _count(self, step: int) -> None:
        with self._lock:
            self.active_overrides += step
        for listener in self.listeners:
            listener(self.active_overrides)

    def _forget_lock(self) -> None:
        # Another thread may have held it when the process was forked.
        self._lock = threading.Lock()

    def watches(self) -> bool:
        """Say whether debug_nans or debug_infs is on; asked for each operation, so it is quick."""
        settings = self._overrides.get()
        if settings is None:
            settings = self._defaults
            return bool(settings["debug_nans"] or settings["debug_infs"])
        return bool(self._read("debug_nans") or self._read("debug_infs"))

    def key(self) -> tuple[Any, ...]:
        """What a compiled variant depends on."""
        if self._overrides.get() is None:
            defaults = self._defaults
            return tuple([defaults[name] for name in _KEY])
        return tuple([self._read(name) for name in _KEY])


_KEY = (
    *("enable_x64", "default_matmul_precision", "numpy_dtype_promotion"),
    *("debug_nans", "debug_infs", "check"),
)


def _setting(name: str) -> property:
    return property(lambda self: self._read(name))


config = Config(
    enable_x64=flag("STAX_ENABLE_X64"),
    disable_jit=flag("STAX_DISABLE_JIT"),
    debug_nans=flag("STAX_DEBUG_NANS"),
    debug_infs=flag("STAX_DEBUG_INFS"),
    default_matmul_precision=None,
    numpy_dtype_promotion="standard",
    verify=flag("STAX_VERIFY"),
    check=choice("STAX_CHECK", CHECKS),
    strict=flag("STAX_STRICT"),
    full_traceback=flag("STAX_FULL_TRACEBACK"),
    # Object code on disk: whether it is kept, where (None: among the user's caches), and how many
    # bytes of it at most (-1: any number).
    enable_compilation_cache=flag("STAX_ENABLE_COMPILATION_CACHE", True),
    compilation_cache_dir=os.environ.get("STAX_CACHE_DIR") or None,
    compilation_cache_max_size=integer("STAX_COMPILATION_CACHE_MAX_SIZE", 1 << 28),
)
for _name in config._defaults:
    setattr(Config, _name, _setting(_name))
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=config._forget_lock)


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


def debug_nans(new_val: bool = True) -> Any:
    """Look for NaN, for a `with` block: the operation that made one raises a FloatingPointError.

    Outside of transforms every operation is looked at, and those that functions are made of.  Of a
    function that runs as a whole, under jit, grad or vmap, it is what the function returns and what
    each step of its loops and each branch taken returns; the error names the operation that made
    the first NaN on which the result depends, in the same run.  A NaN that is masked before it gets
    there is no error.
    """
    return config.override(debug_nans=new_val)


def debug_infs(new_val: bool = True) -> Any:
    """Look for infinities as `debug_nans` looks for NaN, for a `with` block."""
    return config.override(debug_infs=new_val)


def numpy_rank_promotion(new_val: str) -> Any:
    """Accept "allow", for a `with` block; JAX's other values raise UnsupportedError."""
    return config.override(numpy_rank_promotion=new_val)


def log_compiles(new_val: bool = True) -> Any:
    """Do nothing, for a `with` block; `jit(f).variants()` lists what was compiled."""
    return config.override(log_compiles=new_val)


def check_tracer_leaks(new_val: bool = True) -> Any:
    """Do nothing, for a `with` block: traced arrays that leak are always noticed."""
    return config.override(check_tracer_leaks=new_val)


checking_leaks = check_tracer_leaks
