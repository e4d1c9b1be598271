"""Settings: contexts, threads, and what compiled variants depend on."""

import threading
from typing import Any

import numpy as np
import pytest

import stax
import stax.numpy as snp
from stax.config import CHECKS, choice, config, flag, integer


@pytest.fixture(autouse=True)
def _unchanged() -> Any:
    before = dict(config._defaults)
    yield
    assert config._defaults == before
    assert config.active_overrides == 0


def test_contexts_nest() -> None:
    assert not config.enable_x64
    with stax.enable_x64(True):
        assert config.enable_x64
        with stax.enable_x64(False), stax.disable_jit():
            assert not config.enable_x64
            assert config.disable_jit
        assert config.enable_x64
        assert not config.disable_jit
    assert not config.enable_x64


def test_contexts_end_with_exceptions() -> None:
    with pytest.raises(KeyError), stax.enable_x64():
        raise KeyError
    assert not config.enable_x64


def test_contexts_belong_to_a_thread() -> None:
    seen = []
    with stax.enable_x64():
        thread = threading.Thread(target=lambda: seen.append(config.enable_x64))
        thread.start()
        thread.join()
    assert seen == [False]


def test_update_is_for_the_process_and_takes_jax_names() -> None:
    seen = []
    config.update("jax_enable_x64", True)
    try:
        thread = threading.Thread(target=lambda: seen.append(config.enable_x64))
        thread.start()
        thread.join()
        assert snp.asarray(1.5).dtype == np.float64
    finally:
        config.update("enable_x64", False)
    assert seen == [True]


def test_unknown_settings() -> None:
    with pytest.raises(AttributeError, match="unknown setting 'enable_x32'"):
        config.update("enable_x32", True)
    with pytest.raises(AttributeError, match="unknown setting 'enable_x32'"):
        _ = config.enable_x32
    with pytest.raises(AttributeError, match="unknown setting"), config.override(enable_x32=True):
        pass


def test_all_contexts() -> None:
    with (
        stax.disable_jit(),
        stax.default_matmul_precision("highest"),
        stax.numpy_dtype_promotion("strict"),
    ):
        assert config.disable_jit
        assert config.default_matmul_precision == "highest"
        assert config.numpy_dtype_promotion == "strict"


def test_the_key_of_variants_holds_what_changes_programs() -> None:
    plain = config.key()
    for context in (
        stax.enable_x64(),
        stax.default_matmul_precision("high"),
        stax.numpy_dtype_promotion("strict"),
    ):
        with context:
            assert config.key() != plain
    assert config.key() == plain


def test_jitted_functions_follow_the_configuration() -> None:
    f = stax.jit(lambda x: x * 2.0)
    x = np.ones(2)
    assert f(x).dtype == np.float32
    with stax.enable_x64():
        assert f(x).dtype == np.float64
    assert f(x).dtype == np.float32
    assert len(f.variants()) == 2


def test_native_entries_follow_the_configuration() -> None:
    """Arrays go by the native entry, which must not run a variant of another configuration."""
    f = stax.jit(lambda x, y: x + y)
    x, y = snp.ones(2, "float32"), snp.ones(2, "bfloat16")
    for _ in range(3):
        assert f(x, y).dtype == np.float32
    with stax.numpy_dtype_promotion("strict"), pytest.raises(TypeError, match="strict"):
        f(x, y)
    assert f(x, y).dtype == np.float32


def test_disable_jit_runs_the_function_itself() -> None:
    seen = []

    def f(x: Any) -> Any:
        seen.append(type(x))
        return x + 1 if x > 0 else x

    jitted = stax.jit(f)
    x = snp.float32(1)
    with stax.disable_jit():
        assert float(jitted(x)) == 2
    assert seen == [stax.Array]
    with pytest.raises(TypeError):
        jitted(x)


def test_disable_jit_after_the_native_entry_was_used() -> None:
    seen = []
    jitted = stax.jit(lambda x: seen.append(1) or x + 1)
    x = snp.ones(2)
    for _ in range(3):
        jitted(x)
    assert len(seen) == 1
    with stax.disable_jit():
        jitted(x)
    assert len(seen) == 2


def test_update_after_the_native_entry_was_used() -> None:
    f = stax.jit(lambda x: x * np.float64(2))
    x = snp.ones(2)
    assert f(x).dtype == f(x).dtype == np.float32
    config.update("enable_x64", True)
    try:
        assert f(x).dtype == f(x).dtype == np.float64
    finally:
        config.update("enable_x64", False)
    assert f(x).dtype == np.float32


@pytest.mark.parametrize(
    ("read", "wrong", "default"),
    [
        (flag, "maybe", False),
        (lambda name: choice(name, CHECKS), "everything", "none"),
        (lambda name: integer(name, 1), "1e9", 1),
    ],
)
def test_what_environment_variables_cannot_be(
    read: Any, wrong: str, default: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STAX_SETTING", wrong)
    with pytest.raises(ValueError, match=f"STAX_SETTING cannot be '{wrong}'"):
        read("STAX_SETTING")
    monkeypatch.setenv("STAX_SETTING", "")
    assert read("STAX_SETTING") == default  # as if it were not set
