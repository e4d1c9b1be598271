"""Where arrays are: the one device, and what programs for several of them ask about it.

Stax computes on one device, the CPU of the machine.  Programs written for many ask each array where
it is (`x.device`, `x.devices()`, `x.sharding`) and are told the same each time; `Placed` holds
those questions, for arrays and traced arrays alike.

    >>> CPU, CPU.platform, CPU.id
    (CpuDevice(id=0), 'cpu', 0)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from stax.errors import ArgumentError, ArgumentValueError
from stax.types import Shape


@dataclass(frozen=True)
class Device:
    """A device that holds arrays; there is one, `CPU`."""

    platform: str = "cpu"
    id: int = 0

    @property
    def device_kind(self) -> str:
        return self.platform

    @property
    def process_index(self) -> int:
        return 0

    @property
    def host_id(self) -> int:
        return 0

    @property
    def local_hardware_id(self) -> int:
        return self.id

    def memory_stats(self) -> None:
        """Return None: the CPU keeps no account of the memory of arrays."""

    def __str__(self) -> str:
        return f"{self.platform}:{self.id}"

    def __repr__(self) -> str:
        return f"{self.platform.capitalize()}Device(id={self.id})"


CPU = Device()


@dataclass(frozen=True)
class SingleDeviceSharding:
    """How an array lies on devices: whole, on one of them."""

    device: Device = CPU
    memory_kind: str | None = "device"

    @property
    def device_set(self) -> set[Device]:
        return {self.device}

    @property
    def addressable_devices(self) -> set[Device]:
        return {self.device}

    @property
    def num_devices(self) -> int:
        return 1

    @property
    def is_fully_addressable(self) -> bool:
        return True

    @property
    def is_fully_replicated(self) -> bool:
        return True

    def shard_shape(self, global_shape: Shape) -> Shape:
        """Return the shape of the part on a device: all of it."""
        return tuple(global_shape)

    def devices_indices_map(self, global_shape: Shape) -> dict[Device, tuple[slice, ...]]:
        """Return which part of an array each device holds."""
        return {self.device: (slice(None),) * len(global_shape)}

    addressable_devices_indices_map = devices_indices_map

    def is_equivalent_to(self, other: Any, ndim: int) -> bool:
        """Say whether an array of `ndim` axes lies the same way under `other`."""
        return isinstance(other, SingleDeviceSharding) and other.device == self.device

    def __repr__(self) -> str:
        return f"SingleDeviceSharding(device={self.device!r}, memory_kind={self.memory_kind})"


@dataclass(frozen=True, eq=False)
class Shard:
    """The part of an array that a device holds, which is all of it."""

    data: Any
    index: tuple[slice, ...]
    device: Device = CPU
    replica_id: int = 0


_WHOLE = SingleDeviceSharding()


def check_device(device: Any, name: str) -> None:
    """Raise ArgumentValueError if `device` is another than the one there is.

    A device, a sharding over it, its name ("cpu", "cpu:0") and None are accepted.
    """
    found = next(iter(device.device_set)) if isinstance(device, SingleDeviceSharding) else device
    if found is None or found == CPU or found in (CPU.platform, str(CPU)):
        return
    raise ArgumentValueError(
        f"{name}: there is no device {device!r}; arrays are on {CPU}.",
        advice="Leave the device out, or pass stax.devices()[0].",
    )


class Placed:
    """What an array is asked about the device that it is on."""

    __slots__ = ()

    @property
    def device(self) -> Device:
        return CPU

    @property
    def sharding(self) -> SingleDeviceSharding:
        return _WHOLE

    @property
    def committed(self) -> bool:
        return True

    @property
    def is_fully_addressable(self) -> bool:
        return True

    @property
    def is_fully_replicated(self) -> bool:
        return True

    @property
    def addressable_shards(self) -> list[Shard]:
        return [Shard(self, (slice(None),) * self.ndim)]  # type: ignore[attr-defined]

    global_shards = addressable_shards

    def addressable_data(self, index: int) -> Any:
        """Return the part of the array that the device of this number holds: all of it."""
        return (self,)[index]

    def devices(self) -> set[Device]:
        """Return the devices that hold a part of the array."""
        return {CPU}

    def platform(self) -> Literal["cpu"]:
        """Return the kind of the device."""
        return "cpu"

    def to_device(self, device: Any, *, stream: Any = None) -> Any:
        """Return the array, which is on the one device there is."""
        check_device(device, "to_device")
        if stream is not None:
            raise ArgumentError("to_device: a CPU has no streams.", advice="Leave stream out.")
        return self
