"""What Stax lacks of JAX's public names, as a page: `python -m stax.compare.coverage`.

The page is docs/missing.md.  A name counts when the module of Stax has a callable of that name;
missing names are listed with the reason of their group, or as not there yet.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax

import stax

PAGE = Path(__file__).parents[2] / "docs" / "missing.md"

DISTRIBUTIONS = (
    "bernoulli beta betabinom binom cauchy chi2 dirichlet expon gamma gennorm geom gumbel_l "
    "gumbel_r laplace logistic multinomial multivariate_normal nbinom norm pareto poisson t "
    "truncnorm uniform vonmises wrapcauchy"
)
MODULES = (
    "jax", "jax.numpy", "jax.numpy.linalg", "jax.numpy.fft", "jax.lax", "jax.lax.linalg", "jax.nn",
    "jax.nn.initializers", "jax.random", "jax.ops", "jax.tree", "jax.tree_util", "jax.debug",
    "jax.errors", "jax.experimental.checkify", "jax.dtypes", "jax.dlpack", "jax.flatten_util",
    "jax.image",
    "jax.scipy.special", "jax.scipy.linalg", "jax.scipy.signal", "jax.scipy.ndimage",
    "jax.scipy.fft", "jax.scipy.interpolate", "jax.scipy.integrate", "jax.scipy.optimize",
    "jax.scipy.spatial.transform", "jax.scipy.cluster.vq", "jax.scipy.stats",
    *(f"jax.scipy.stats.{name}" for name in DISTRIBUTIONS.split()),
)  # fmt: skip

# Why names are missing: a reason, and the names that it is for, each with its module.
REASONS: tuple[tuple[str, str], ...] = (
    (
        "there is one device, in one process",
        r"jax\.(NamedSharding|P|Shard|make_mesh|set_mesh|shard_map|smap|pmap|reshard|make_array_\w+"
        r"|host_\w+|distributed|transfer_guard\w*|array_garbage\w*|thread_guard"
        r"|fwd_and_bwd|remove_size\w*|auto_pcast)"
        r"|jax\.lax\.(ragged_all\w+|platform_\w+|psend|precv|pcast|pvary|infeed|outfeed|with_sharding\w+|tpu_\w+"
        r"|preduced\w*|unreduced\w*|reduced_\w+)",
    ),
    (
        "mutable arrays: a function is pure",
        r"jax\.(Ref|ref|new_ref|empty_ref|free_ref|freeze|memory)",
    ),
    (
        "settings and internals of JAX or XLA",
        r"jax\.(default_prng_impl|enable_\w+|explain_\w+|jax2tf_\w+|legacy_\w+|log_\w+|no_\w+"
        r"|threefry_\w+|softmax_custom_jvp|debug_\w+|allow_f16\w*|print_environment_info"
        r"|make_user_context|monitoring|numpy_\w+)|jax\.debug\.\w*DebugEffect"
        r"|jax\.lax\.(RandomAlgorithm|after_all|create_token|rng_\w+|dce_sink|composite)",
    ),
    (
        "formats of less than a byte or without arithmetic on this machine",
        r"jax\.numpy\.(float[468]\w+|u?int[124])|jax\.(nn|lax)\.(scaled_\w+|get_scaled\w+)",
    ),
)
UNEXPLAINED = "not there yet"


def names(module: Any) -> Iterator[str]:
    """Yield the public callables of a module of JAX, primitives left out."""
    for name in dir(module):
        value = getattr(module, name, None)
        if name.startswith("_") or name.endswith("_p") or inspect.ismodule(value):
            continue
        if callable(value):
            yield name


def lacking(path: str) -> tuple[int, list[str]]:
    """Return how many names a module of JAX has, and those that Stax lacks."""
    theirs = list(names(importlib.import_module(path)))
    try:
        ours: Any = importlib.import_module(path.replace("jax", "stax", 1))
    except ImportError:
        ours = None
    return len(theirs), [name for name in theirs if not callable(getattr(ours, name, None))]


def reason(path: str, name: str) -> str:
    """Return why a name is missing."""
    full = f"{path}.{name}"
    return next((why for why, names in REASONS if re.fullmatch(names, full)), UNEXPLAINED)


def page() -> str:
    """Return the page as Markdown."""
    found = {path: lacking(path) for path in MODULES}
    total = sum(count for count, _ in found.values())
    missing = sum(len(lacks) for _, lacks in found.values())
    lines = [
        f"# What Stax lacks of JAX {jax.__version__}",
        "",
        "Public functions and classes of JAX, module by module; `jax.numpy` is `stax.numpy` here,",
        "and so on.  This page is made by `python -m stax.compare.coverage`.",
        "",
        f"{total - missing} of {total} names are there.",
        "",
        "| module | there | of |",
        "|:---|---:|---:|",
    ]
    lines += [f"| `{path}` | {n - len(lacks)} | {n} |" for path, (n, lacks) in found.items()]
    for path, (_, lacks) in found.items():
        if lacks:
            lines += ["", f"## {path}", "", *_listed(path, lacks)]
    return "\n".join(lines) + "\n"


def _listed(path: str, lacks: list[str]) -> Iterator[str]:
    """Yield a line for each reason with the names that it is for."""
    groups: dict[str, list[str]] = {}
    for name in lacks:
        groups.setdefault(reason(path, name), []).append(f"`{name}`")
    for why in sorted(groups, key=[*(w for w, _ in REASONS), UNEXPLAINED].index):
        yield f"- {why}: {', '.join(groups[why])}"


def main() -> int:
    """Write the page, or print it outside of a clone of the repository; return the exit code."""
    if not PAGE.parent.is_dir():
        print(page())
        return 0
    PAGE.write_text(page())
    print(f"wrote {PAGE} for JAX {jax.__version__} and Stax {stax.__version__}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
