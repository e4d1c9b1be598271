"""Settings of every test run: checks after every pass, no silent fallback, repeatable examples.

Golden texts (printed graphs and kernels) lie in tests/golden; `pytest --update-golden` writes them
anew, to be read as a diff.
"""

import ctypes
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

# Read when stax is imported, so set before any test module is.
os.environ.setdefault("STAX_VERIFY", "1")
os.environ.setdefault("STAX_STRICT", "1")
# The comparisons are with JAX's CPU backend, also on a machine that has an accelerator.
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "ci",
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("ci")

GOLDEN = Path(__file__).parent / "golden"


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
