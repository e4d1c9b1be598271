"""Arrays and the one device: what programs for several devices ask and do."""

import pickle
from typing import Any

import jax
import numpy as np
import pytest

import stax
import stax.numpy as snp

X = np.arange(3, dtype=np.float32)


@pytest.mark.parametrize("lib", [stax, jax], ids=["stax", "jax"])
def test_where_arrays_are(lib: Any) -> None:
    x = lib.numpy.ones((2, 3))
    (device,) = lib.devices()
    assert x.devices() == {device} == x.sharding.device_set
    assert (device.platform, device.id, str(device)) == ("cpu", 0, "cpu:0") or lib is jax
    assert lib.default_backend() == "cpu" and lib.device_count() == lib.local_device_count()
    assert x.device in (device, x.sharding) and x.is_fully_addressable and x.is_fully_replicated
    assert x.sharding.shard_shape((2, 3)) == (2, 3) and x.sharding.num_devices == 1
    assert x.addressable_data(0).shape == x.addressable_shards[0].data.shape == (2, 3)
    assert x.on_device_size_in_bytes() >= 24 and x.is_ready() and x.platform() == "cpu"
    assert x.to_device(device).shape == (2, 3)
    assert not x.weak_type and x.aval.shape == (2, 3) == lib.typeof(x).shape
    assert lib.local_devices() == lib.devices("cpu")
    assert (lib.process_count(), lib.process_index(), lib.process_indices()) == (1, 0, [0])
    assert isinstance(x, lib.typing.ArrayLike) and not isinstance([1.0], lib.typing.ArrayLike)
    assert isinstance(lib.jit(abs).lower(x).compile(), lib.stages.Compiled)
    with lib.default_device(device):
        assert lib.numpy.ones(2).devices() == {device}


def test_other_devices_are_refused() -> None:
    for use in (lambda: stax.devices("gpu"), lambda: stax.device_put(X, "gpu")):
        with pytest.raises(ValueError, match="there is no"):
            use()
    assert repr(stax.devices()[0]) == "CpuDevice(id=0)"
    assert pickle.loads(pickle.dumps(stax.devices()[0])) == stax.devices()[0]


def test_device_put_and_get() -> None:
    given = {"a": X, "b": [1.5, snp.ones(2)], "c": None}
    put = stax.device_put(given, stax.devices()[0])
    assert [type(x) for x in stax.tree.leaves(put)] == [stax.Array] * 3
    assert put["b"][0].weak_type and put["b"][1] is given["b"][1]
    fetched = stax.device_get(put)
    assert [type(x) for x in stax.tree.leaves(fetched)] == [np.ndarray] * 3
    assert stax.device_get([1, "a", snp.asarray(2)]) == [1, "a", 2]
    assert stax.jit(lambda x: stax.device_put(x) + 1)(X).tolist() == [1, 2, 3]
    with pytest.raises(TypeError, match="'text' of type str"):
        stax.device_put("text")


def test_device_put_may_donate_and_must_copy() -> None:
    x = snp.ones(3)
    assert stax.device_put(x) is x
    copied = stax.device_put(x, may_alias=False)
    assert copied.unsafe_buffer_pointer() != x.unsafe_buffer_pointer()
    moved = stax.device_put(x, donate=True)
    assert x.is_deleted() and moved.tolist() == [1, 1, 1]
    with pytest.raises(ValueError, match="donated and aliased"):
        stax.device_put(moved, donate=True, may_alias=True)


def test_waiting() -> None:
    tree = {"a": snp.ones(2), "b": 3}
    assert stax.block_until_ready(tree) is tree and stax.copy_to_host_async(tree) is tree
    assert stax.effects_barrier() is None


def test_live_arrays() -> None:
    x = snp.full(3, 17.0)
    assert any(y is x for y in stax.live_arrays())
    x.delete()
    assert not any(y is x for y in stax.live_arrays("cpu"))


def test_where_arrays_are_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    found: list[Any] = []
    stax.jit(lambda x: stax.debug.inspect_array_sharding(x, callback=found.append))(X)
    stax.debug.inspect_array_sharding({"a": snp.ones(2), "b": 1.0}, callback=found.append)
    assert [sharding.num_devices for sharding in found] == [1, 1, 1]
    for x in (snp.ones(3), snp.ones((2, 3))):
        stax.debug.visualize_array_sharding(x, use_color=False)
        assert "CPU 0" in capsys.readouterr().out
    with pytest.raises(ValueError, match="vector or a matrix"):
        stax.debug.visualize_array_sharding(snp.ones((1, 2, 3)))
