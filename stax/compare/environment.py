"""What a comparison ran on: versions and the processor, without which a time means nothing."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from pathlib import Path
from typing import Any

import stax


def describe() -> dict[str, Any]:
    """Return the versions of both libraries and of Python, the processor, and its cores."""
    return {
        "stax": stax.__version__,
        "jax": importlib.metadata.version("jax"),
        "jaxlib": importlib.metadata.version("jaxlib"),
        "numpy": importlib.metadata.version("numpy"),
        "python": platform.python_version(),
        "platform": platform.platform(terse=True),
        "processor": processor(),
        "cores": cores(),
    }


def cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def processor() -> str:
    """Return the processor's name as Linux reports it, elsewhere what Python knows."""
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
