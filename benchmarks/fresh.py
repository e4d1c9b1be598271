"""The first call of a program in a fresh process, with the caches on disk empty and then filled.

`python -m benchmarks.fresh NAME LIBRARY [--odd]` is such a process; it prints its figures as JSON.
The import of the library is timed apart.  What the call adds to the resident memory holds the
compiler's own, hence more than the program plans.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True)
class FirstCall:
    """What the first call took in one process; `added_bytes` is resident memory at its peak."""

    import_seconds: float
    first_seconds: float
    page_faults: int
    added_bytes: int


@dataclass(frozen=True)
class Fresh:
    """A first call with empty caches, and one with what the first left in them."""

    cold: FirstCall
    warm: FirstCall


class ProcessFailed(Exception):
    """A process ended without figures; the message is the last line that it printed."""


def fresh(name: str, library: str, odd: bool) -> Fresh:
    """Run a program of the list in two processes, one after the other, with one cache."""
    with tempfile.TemporaryDirectory(prefix="stax-benchmarks-") as cache:
        cold, warm = (_process(name, library, odd, cache) for _ in range(2))
    return Fresh(cold, warm)


def cached_in(folder: str) -> dict[str, str]:
    """Return the environment in which either library keeps all compiled code in `folder`."""
    return {
        **os.environ,
        "STAX_CACHE_DIR": folder,
        "JAX_COMPILATION_CACHE_DIR": folder,
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "0",
        "JAX_PLATFORMS": "cpu",
    }


def _process(name: str, library: str, odd: bool, cache: str) -> FirstCall:
    command = [sys.executable, "-m", "benchmarks.fresh", name, library, *(["--odd"] if odd else [])]
    done = subprocess.run(
        command, cwd=ROOT, env=cached_in(cache), capture_output=True, text=True, check=False
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise ProcessFailed(f"{library} in a fresh process: {last}")
    return FirstCall(**json.loads(done.stdout))


def first_call(name: str, library: str, odd: bool) -> FirstCall:
    """Import a library into this process and call a program for the first time."""
    start = time.perf_counter()
    lib: Any = importlib.import_module(library)
    import_seconds = time.perf_counter() - start
    # The programs import Stax: not before the import of a library has been timed.
    importlib.import_module("benchmarks.programs")
    listed = importlib.import_module("benchmarks.benchmark").BENCHMARKS
    wait = importlib.import_module("stax.compare.measure").wait
    function, arguments = listed[name].sized(odd).build(lib)
    arguments = lib.tree_util.tree_map(lib.numpy.asarray, arguments)
    faults, resident = _page_faults(), _memory("VmRSS")
    start = time.perf_counter()
    wait(lib.jit(function)(*arguments))
    seconds = time.perf_counter() - start
    added = max(0, _memory("VmHWM") - resident)
    return FirstCall(import_seconds, seconds, _page_faults() - faults, added)


def _page_faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def _memory(field: str) -> int:
    """Return a figure of this process in bytes; where only the peak is known, that."""
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure in this process, and print the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fresh", description=__doc__)
    parser.add_argument("name")
    parser.add_argument("library", choices=("stax", "jax"))
    parser.add_argument("--odd", action="store_true")
    options = parser.parse_args(arguments)
    print(json.dumps(asdict(first_call(options.name, options.library, options.odd))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
