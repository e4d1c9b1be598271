"""Object code on disk: found by later processes, and as if it were not there when it is not right.

Entries are files of a folder, so most tests look at the folder, or do to it what a full disk, a
crash or another process would.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stax.config import config
from stax.runtime import engine, object_cache
from stax.runtime.object_cache import ObjectCache

TEXT = """
define i64 @f(i64 %x) {{
  %y = add i64 %x, {number}
  ret i64 %y
}}
"""
PROGRAM = """
import stax, stax.numpy as np
f = lambda x, w: np.tanh(x @ w).sum(0) + np.fft.fft(x[0]).real[:2]
def run():
    stax.clear_caches()
    return stax.jit(stax.grad(lambda x, w: f(x, w).sum()))(np.ones((3, 2)), np.ones((2, 2)))
"""
AGAIN = """
from stax.runtime import compiler, engine
emit, engine._Engine.emit = engine._Engine.emit, None
lowered, compiler.lowered = compiler.lowered, None
print(run())
engine._Engine.emit, compiler.lowered = emit, lowered
stax.config.update("compilation_cache_dir", {other!r})
run()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Holds the entries that this test makes."""
    with config.override(compilation_cache_dir=str(tmp_path)):
        yield tmp_path / "objects"


def entries(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def emitted(number: int = 1) -> bytes:
    return engine.emit_object(TEXT.format(number=number))


def settings_of_the_environment() -> Any:
    spec = importlib.util.spec_from_file_location(
        "fresh", sys.modules["stax.config"].__file__ or ""
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.config


def test_code_is_emitted_once(folder: Path, monkeypatch: Any) -> None:
    code = emitted()
    assert len(entries(folder)) == 1
    monkeypatch.setattr(engine._engine(), "emit", None)
    assert emitted() == code


def test_another_process_finds_the_same_entries(
    folder: Path, run_script: Callable[..., str]
) -> None:
    """Entries hold no address of a process, and no order that differs between processes."""
    given = {"STAX_CACHE_DIR": str(folder.parent), "STAX_VERIFY": "0"}
    first = run_script(PROGRAM + "print(run())", PYTHONHASHSEED="1", **given)
    before, other = entries(folder), folder.parent / "other"
    again = PROGRAM + AGAIN.format(other=str(other))
    assert run_script(again, PYTHONHASHSEED="2", **given) == first
    assert entries(folder) == before
    assert entries(other / "objects").items() < before.items()


@pytest.mark.parametrize("change", ["empty", "short", "flipped", "longer", "renamed", "folder"])
def test_what_is_not_whole_is_no_entry(folder: Path, change: str) -> None:
    code, other = emitted(), emitted(2)
    (path,) = [p for p in folder.iterdir() if p.read_bytes().endswith(code)]
    (unlike,) = [p for p in folder.iterdir() if p != path]
    data = path.read_bytes()
    middle = len(data) // 2
    match change:
        case "folder":
            path.unlink()
            path.mkdir()
        case "renamed":
            path.write_bytes(unlike.read_bytes())
        case _:
            path.write_bytes({
                "empty": b"",
                "short": data[:middle],
                "flipped": data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :],
                "longer": data + b"\0",
            }[change])  # fmt: skip
    assert emitted() == code != other
    if change != "folder":
        assert path.read_bytes() == data


@pytest.mark.parametrize("place", ["a file", "read-only", "unwritable", "no name"])
def test_without_a_folder_nothing_is_kept(tmp_path: Path, place: str, monkeypatch: Any) -> None:
    chosen = tmp_path / "cache"
    if place == "a file":
        chosen.write_text("")
    elif place == "read-only":
        chosen.mkdir(mode=0o500)
    elif place == "no name":
        chosen = Path("/dev/null/cache\0")
    else:

        def replace(*names: str) -> None:
            raise OSError(28, "no space left on device")

        monkeypatch.setattr(os, "replace", replace)
    with config.override(compilation_cache_dir=str(chosen)):
        assert emitted() == emitted()
    if place == "unwritable":
        assert not entries(chosen / "objects")


def test_settings_turn_it_off(folder: Path) -> None:
    with config.override(enable_compilation_cache=False):
        emitted()
    assert not folder.exists()


def test_settings_of_the_environment(monkeypatch: Any) -> None:
    monkeypatch.setenv("STAX_ENABLE_COMPILATION_CACHE", "0")
    monkeypatch.setenv("STAX_CACHE_DIR", "chosen")
    monkeypatch.setenv("STAX_COMPILATION_CACHE_MAX_SIZE", "100")
    fresh = settings_of_the_environment()
    assert not fresh.enable_compilation_cache
    assert (fresh.compilation_cache_dir, fresh.compilation_cache_max_size) == ("chosen", 100)
    monkeypatch.setenv("STAX_COMPILATION_CACHE_MAX_SIZE", "100 MB")
    with pytest.raises(ValueError, match="MAX_SIZE cannot be '100 MB'"):
        settings_of_the_environment()


def test_the_folder_is_the_users_unless_one_is_chosen(monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    object_cache._user_folder.cache_clear()  # type: ignore[attr-defined]
    try:
        found = object_cache._user_folder()
    finally:
        object_cache._user_folder.cache_clear()  # type: ignore[attr-defined]
    assert found.name == "stax-compiler"
    if sys.platform == "linux":
        assert found.parent == tmp_path


@pytest.mark.parametrize("field", ["cpu", "features"])
def test_another_cpu_or_another_version_is_another_entry(
    folder: Path, monkeypatch: Any, field: str
) -> None:
    emitted()
    host = engine.target()
    fields = {name: getattr(host, name) for name in host.__dataclass_fields__}
    changed = engine.Target(**{**fields, field: fields[field] + "x"})
    monkeypatch.setattr(engine, "target", lambda: changed)
    monkeypatch.setattr(engine, "dependences", engine.dependences.__wrapped__)  # type: ignore[attr-defined]
    emitted()
    assert len(entries(folder)) == 2
    monkeypatch.setattr(engine, "__version__", "another")
    emitted()
    engine.emit_object(TEXT.format(number=1), optimize=False)
    assert len(entries(folder)) == 4


def aged(cache: ObjectCache, name: str, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(f"{cache.folder}/{name}.o", (then, then))


def test_what_was_not_used_for_longest_goes(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path / "objects")
    abandoned = tmp_path / "objects" / "x.unfinished"
    with config.override(compilation_cache_max_size=-1):
        for i in range(10):
            cache.store(f"n{i}", bytes(1000))
            aged(cache, f"n{i}", 1e4 - i)
        abandoned.write_bytes(b"")
        os.utime(abandoned, (0, 0))
        cache.load("n0")  # renews it
    with config.override(compilation_cache_max_size=8200):
        cache.make_room()
    kept = [f"n{i}" for i in range(10) if cache.load(f"n{i}") is not None]
    assert kept == ["n0", "n6", "n7", "n8", "n9"]
    assert not abandoned.exists()


def test_what_is_stored_makes_room(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path / "objects")
    with config.override(compilation_cache_max_size=5000):
        for i in range(40):
            cache.store(f"n{i}", bytes(1000))
    assert 0 < len(entries(cache.folder)) <= 5
    with config.override(compilation_cache_max_size=0):
        cache.store("last", b"code")
    assert not entries(cache.folder)


def write_and_read(folder: Path, rounds: int) -> None:
    """With room made all the while; what is found is whole."""
    cache = ObjectCache(folder)
    with config.override(compilation_cache_max_size=150000):
        for i in [*range(10)] * rounds:
            code = bytes([i]) * (100 + 4000 * i)
            cache.store(f"n{i}", code)
            assert cache.load(f"n{i}") in (code, None)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
def test_processes_write_at_the_same_time(tmp_path: Path) -> None:
    others = []
    for _ in range(2):
        child = os.fork()
        if not child:
            try:
                write_and_read(tmp_path, 20)
                os._exit(0)
            finally:
                os._exit(1)
        others.append(child)
    write_and_read(tmp_path, 20)
    assert [os.waitpid(child, 0)[1] for child in others] == [0, 0]
    assert {Path(name).suffix for name in entries(tmp_path)} == {".o"}
