"""Settings of every test run: checks after every pass, no silent fallback, repeatable examples.

Golden texts (printed graphs and kernels) lie in tests/golden; `pytest --update-golden` writes them
anew, to be read as a diff.
"""

import atexit
import ctypes
import gc
import importlib.util
import mmap
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings


def _xla_flags(*wanted: str) -> str:
    """Return those flags that jaxlib knows: one that it does not know would end the process."""
    spec = importlib.util.find_spec("jaxlib")
    for path in Path(spec.origin).parent.glob("libjax_common.so") if spec and spec.origin else ():
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
            names = {flag: f"\0{flag[2 : flag.index('=')]}\0".encode() for flag in wanted}
            return " ".join(flag for flag, name in names.items() if text.find(name) >= 0)
    return ""


# Read when stax is imported, so set before any test module is.
os.environ.setdefault("STAX_VERIFY", "1")
os.environ.setdefault("STAX_STRICT", "1")
if "STAX_CACHE_DIR" not in os.environ:  # set in the processes that this one starts
    os.environ["STAX_CACHE_DIR"] = tempfile.mkdtemp(prefix="stax-tests-")
    atexit.register(shutil.rmtree, os.environ["STAX_CACHE_DIR"], ignore_errors=True)
# The comparisons are with JAX's CPU backend, also on a machine that has an accelerator.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# JAX is asked for values, one small function after the other, so nearly all of its time is XLA's
# compiler, which so takes a third. `JAX_DISABLE_MOST_OPTIMIZATIONS=0 XLA_FLAGS= pytest` keeps it.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
if "XLA_FLAGS" not in os.environ:
    os.environ["XLA_FLAGS"] = _xla_flags(
        "--xla_cpu_use_fusion_emitters=false", "--xla_cpu_parallel_codegen_split_count=1"
    )

settings.register_profile(
    "ci",
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("ci")

GOLDEN = Path(__file__).parent / "golden"


def pytest_collection() -> None:
    """Let the collection of tests run without the garbage collector: nothing of it is garbage."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Keep the tests and modules, which stay to the end, out of the collector's sight."""
    gc.enable()
    gc.freeze()


@pytest.fixture(autouse=True, scope="module")
def memory_given_back() -> Iterator[None]:
    """Give freed memory back after each module: XLA's compiler leaves gigabytes in pieces."""
    yield
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)


def pytest_addoption(parser: Any) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write the texts in tests/golden anew"
    )


@pytest.fixture
def golden(request: Any) -> Callable[[str, Any], None]:
    """Compares the text of a value with a file in tests/golden, named without its ending."""

    def check(name: str, value: Any) -> None:
        path, text = GOLDEN / f"{name}.txt", f"{value}\n"
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        assert text == path.read_text(), "the text changed; see --update-golden"

    return check


@pytest.fixture
def interrupts() -> Iterator[None]:
    """Have Ctrl-C raise KeyboardInterrupt, also in the background of a shell."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
