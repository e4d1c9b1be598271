"""JAX's results, recorded: compiling a sampler takes JAX a second, and reading its result nothing.

A test asks `from_jax(compute)` for the result of `compute`, a function that calls JAX.  It is read
from a file in tests/golden, under the name of the test and the number of the question in it;
`pytest --update-golden` computes and writes it, and the slow tests (`-m slow`) compute it again in
place of reading it, so the files cannot be wrong for long.
"""

import itertools
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest


class Recorded:
    """An array as JAX returned it: its values, dtype and weak type."""

    def __init__(self, entry: dict[str, Any]) -> None:
        self.dtype = jnp.dtype(entry["dtype"])
        self.shape = tuple(entry["shape"])
        self.weak_type = entry["weak"]
        parts = [np.array(part) for part in entry["parts"]]
        wide = parts[0] + 1j * parts[1] if len(parts) == 2 else parts[0]
        self._values = wide.astype(self.dtype).reshape(self.shape)

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.asarray(self._values, dtype)


def _entry(value: Any) -> dict[str, Any]:
    flat = np.asarray(value).reshape(-1)
    parts = [flat.real, flat.imag] if flat.dtype.kind == "c" else [flat]
    return {
        "dtype": flat.dtype.name,
        "shape": list(np.shape(value)),
        "weak": bool(getattr(value, "weak_type", False)),
        "parts": [[_short(x, part.dtype) for x in part.tolist()] for part in parts],
    }


def _short(x: Any, dtype: np.dtype) -> Any:
    """Return a number with the digits that tell it from others of its dtype."""
    return float(f"{x:.9g}") if isinstance(x, float) and dtype.itemsize <= 4 else x


class Records:
    """The results in one file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.entries: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        self.is_new = False

    def read(self, key: str) -> Any:
        entry = self.entries[key]
        return tuple(map(Recorded, entry)) if isinstance(entry, list) else Recorded(entry)

    def write(self, key: str, value: Any) -> None:
        found = list(map(_entry, value)) if isinstance(value, tuple) else _entry(value)
        self.entries[key], self.is_new = found, True

    def save(self) -> None:
        lines = [f"{json.dumps(k)}: {json.dumps(v)}" for k, v in sorted(self.entries.items())]
        self.path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def _optimized(compute: Callable[[], Any]) -> Any:
    """Return what JAX computes as users have it: in a hurry, XLA contracts products into sums."""
    hurried = jax.config.read("jax_disable_most_optimizations")
    jax.clear_caches()
    jax.config.update("jax_disable_most_optimizations", False)
    try:
        return compute()
    finally:
        jax.config.update("jax_disable_most_optimizations", hurried)
        jax.clear_caches()


def fixtures(name: str) -> tuple[Any, Any]:
    """Return the fixtures `records` and `from_jax` over the file `name` in tests/golden."""
    path = Path(__file__).parent / "golden" / f"{name}.json"

    @pytest.fixture(scope="session")
    def records() -> Iterator[Records]:
        held = Records(path)
        yield held
        if held.is_new:
            held.save()

    @pytest.fixture(params=["recorded", pytest.param("live", marks=pytest.mark.slow)])
    def from_jax(request: Any, records: Records) -> Callable[[Callable[[], Any]], Any]:
        name = re.sub(r"(?<=[\[-])(recorded|live)(?=[\]-])", "*", request.node.name)
        numbers = itertools.count()

        def found(compute: Callable[[], Any]) -> Any:
            if request.param == "live":
                return _optimized(compute)
            key = f"{request.module.__name__.rpartition('.')[2]}: {name}, {next(numbers)}"
            if request.config.getoption("--update-golden"):
                records.write(key, _optimized(compute))
            return records.read(key)

        return found

    return records, from_jax
