"""Arrays and the device: device_put, device_get, devices, and waiting for results.

There is one device, and a call returns when its work is done, so most of these only check what they
are given; programs written for JAX call them.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.table import Table

from stax import tree
from stax.array import Array, array_from_numpy, asarray, value_of
from stax.device import CPU, Device, SingleDeviceSharding, check_device
from stax.errors import ArgumentError, ArgumentValueError
from stax.types import is_key


def devices(backend: str | None = None) -> list[Device]:
    """Return the devices, of which there is one; raises for a backend other than "cpu"."""
    if backend not in (None, CPU.platform):
        raise ArgumentValueError(
            f"devices: there is no backend {backend!r}.", advice="Arrays are on 'cpu'."
        )
    return [CPU]


def local_devices(
    process_index: int | None = None, backend: str | None = None, host_id: int | None = None
) -> list[Device]:
    """Return the devices of this process; see `devices`."""
    return devices(backend)


def device_count(backend: str | None = None) -> int:
    """Return the number of devices."""
    return len(devices(backend))


local_device_count = device_count


def process_count(backend: str | None = None) -> int:
    """Return the number of processes that share the work: this one."""
    return len(process_indices(backend))


def process_index(backend: str | None = None) -> int:
    """Return the number of this process among those that share the work: 0, as it is alone."""
    return process_indices(backend)[0]


def process_indices(backend: str | None = None) -> list[int]:
    """Return the numbers of the processes that share the work."""
    return sorted({device.process_index for device in devices(backend)})


def default_backend() -> str:
    """Return the platform that arrays are on."""
    return CPU.platform


@contextmanager
def default_device(new_val: Any = None) -> Iterator[None]:
    """Put new arrays on a device, for a `with` block; there is one, and None means it too."""
    check_device(new_val, "default_device")
    yield


def device_put(
    x: Any, device: Any = None, *, src: Any = None, donate: Any = False, may_alias: Any = None
) -> Any:
    """Return a pytree with its leaves as arrays on the device.

    Arrays are returned as they are unless `may_alias` is False, which copies them; with `donate`
    the given arrays are deleted.  `device` and `src` are devices, shardings, or pytrees of them.

    Raises TypeError for leaves that are no arrays or numbers, ValueError for another device.
    """
    for place in (device, src):
        for leaf in tree.tree_leaves(place):
            check_device(leaf, "device_put")
    leaves, treedef = tree.tree_flatten(x)
    donated = tree.broadcast_prefix(donate, x)
    aliased = tree.broadcast_prefix(may_alias, x, is_leaf=lambda leaf: leaf is None)
    if any(d and m for d, m in zip(donated, aliased, strict=True)):
        raise ArgumentValueError(
            "device_put: an array cannot be donated and aliased.",
            advice="Leave out donate or may_alias.",
        )
    placed = [
        _placed(leaf, m is False and not d)
        for leaf, d, m in zip(leaves, donated, aliased, strict=True)
    ]
    for i in range(len(leaves)):
        if donated[i] and type(leaves[i]) is Array and not leaves[i].is_deleted():
            placed[i] = array_from_numpy(value_of(leaves[i]).view(), leaves[i].type)
            leaves[i].delete()
    return treedef.unflatten(placed)


def _placed(leaf: Any, copy: bool) -> Any:
    if isinstance(leaf, str) or leaf is None:
        raise ArgumentError(
            f"device_put takes arrays and numbers, not {leaf!r} of type {type(leaf).__name__}.",
            advice="Map it over the leaves that are arrays.",
        )
    array = asarray(leaf)
    return array.__copy__() if copy and type(leaf) is Array else array


def device_get(x: Any) -> Any:
    """Return a pytree with its arrays as NumPy arrays, read-only and without a copy.

    Leaves that are no arrays of numbers, random keys among them, are returned as they are.
    """
    return tree.tree_map(_fetched, x)


def _fetched(leaf: Any) -> Any:
    is_numeric = hasattr(leaf, "__array__") and not is_key(getattr(leaf, "dtype", None))
    return leaf.__array__() if is_numeric else leaf


def block_until_ready(x: Any) -> Any:
    """Return `x`, having waited for every leaf that can be waited for."""
    for leaf in tree.tree_leaves(x):
        if hasattr(leaf, "block_until_ready"):
            leaf.block_until_ready()
    return x


def copy_to_host_async(x: Any) -> Any:
    """Return `x`, whose arrays are on the host already."""
    for leaf in tree.tree_leaves(x):
        if hasattr(leaf, "copy_to_host_async"):
            leaf.copy_to_host_async()
    return x


def effects_barrier() -> None:
    """Do nothing: effects of a call have happened when it returns."""


def live_arrays(platform: str | None = None) -> list[Array]:
    """Return the arrays that the program holds and that are not deleted."""
    devices(platform)
    return [x for x in gc.get_objects() if type(x) is Array and not x.is_deleted()]


def inspect_array_sharding(value: Any, *, callback: Callable[[Any], None]) -> None:
    """Call `callback` with how each array of the tree `value` lies on devices: whole, on one."""
    for leaf in tree.tree_leaves(value):
        callback(leaf.sharding if type(leaf) is Array else SingleDeviceSharding())


def visualize_sharding(
    shape: Sequence[int],
    sharding: Any,
    *,
    use_color: bool = True,
    scale: float = 1.0,
    min_width: int = 9,
    max_width: int = 80,
    color_map: Any = None,
) -> None:
    """Print an array of `shape`, a vector or a matrix, as a box with the devices that hold it."""
    if len(shape) not in (1, 2):
        raise ArgumentValueError(
            f"visualize_sharding: {tuple(shape)} is not the shape of a vector or a matrix.",
            advice="Give the shape of a part of the array.",
        )
    names = ",".join(f"{d.platform.upper()} {d.id}" for d in sharding.device_set)
    rows, columns = (1, shape[0]) if len(shape) == 1 else shape
    width = min(max(min_width, int(scale * 24 * columns / max(rows, columns, 1))), max_width)
    table = Table(show_header=False, show_lines=True, padding=0)
    table.add_column(justify="center", width=width)
    table.add_row(names, style="on blue" if use_color else "")
    Console().print(table)


def visualize_array_sharding(arr: Any, **kwargs: Any) -> None:
    """Print an array as a box with the devices that hold it; see `visualize_sharding`."""
    inspect_array_sharding(
        arr, callback=lambda sharding: visualize_sharding(arr.shape, sharding, **kwargs)
    )
