"""Object code on disk, for processes to come.

The one idea: an entry is a file named by a digest of everything that its code depends on, so it is
never out of date, and readers and writers need no lock.  A file is written under another name and
then renamed, so it is there whole or not at all, and it begins with a digest of its name and
contents: what was cut off or changed is no entry.  Whatever goes wrong with files is as if there
were no entry.

The folder is that of the user's caches or STAX_CACHE_DIR; whoever may write to it decides what code
runs.  When it holds more than `config.compilation_cache_max_size` bytes, what was not used for the
longest time goes.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import time
from hashlib import blake2b
from importlib import import_module
from pathlib import Path

from stax.config import config
from stax.runtime.once import once

_MAGIC = b"stax object 1\n"
_DIGEST_BYTES = 32
_ENDING, _UNFINISHED = ".o", ".unfinished"
# A file left by a process that was killed while it wrote.
_ABANDONED_SECONDS = 3600.0
# The date of an entry is renewed at its use when it is older than this.
_RENEWED_SECONDS = 60.0
# A ValueError says that a name cannot be that of a file.
_FAILURES = (OSError, ValueError)
# Room is made down to this share of the size, and looked for after so many bytes were written.
_KEPT_SHARE, _LOOKED_AFTER = 0.75, 8


@once
def _user_folder() -> Path:
    # Where STAX_CACHE_DIR is set it is not asked for.
    found: Path = import_module("platformdirs").user_cache_path("stax-compiler", appauthor=False)
    return found


def digest(*parts: str) -> str:
    """Return the name of an entry that depends on these texts and on nothing else."""
    found = blake2b(digest_size=_DIGEST_BYTES)
    for part in parts:
        data = part.encode()
        found.update(len(data).to_bytes(8, "little"))
        found.update(data)
    return found.hexdigest()


def _checksum(name: str, code: bytes) -> bytes:
    return blake2b(code, digest_size=_DIGEST_BYTES, key=name.encode()[:64]).digest()


def _without_waiting(path: str, flags: int) -> int:
    """Open a file; something else, such as a pipe, is not waited for."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _is_old(date: float) -> bool:
    return time.time() - date > _ABANDONED_SECONDS


class ObjectCache:
    """The entries in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._written = 0
        self._has_folder = False

    def load(self, name: str) -> bytes | None:
        """Return the code stored under `name`; None where there is none that can be relied on."""
        path = f"{self.folder}/{name}{_ENDING}"
        try:
            with open(path, "rb", opener=_without_waiting) as file:
                data = file.read()
                age = time.time() - os.fstat(file.fileno()).st_mtime
        except _FAILURES:
            return None
        head = len(_MAGIC) + _DIGEST_BYTES
        code = data[head:]
        if data[:head] != _MAGIC + _checksum(name, code):
            return None
        if abs(age) > _RENEWED_SECONDS:
            with contextlib.suppress(OSError):
                os.utime(path)
        return code

    def store(self, name: str, code: bytes) -> None:
        """Keep code for other processes, if the folder can be written to."""
        path = f"{self.folder}/{name}"
        unfinished = f"{path}.{os.urandom(8).hex()}{_UNFINISHED}"
        try:
            if not self._has_folder:
                os.makedirs(self.folder, mode=0o700, exist_ok=True)
                self._has_folder = True
            with open(unfinished, "xb") as file:
                file.write(_MAGIC + _checksum(name, code) + code)
            os.replace(unfinished, path + _ENDING)
        except _FAILURES:
            with contextlib.suppress(*_FAILURES):
                os.unlink(unfinished)
            self._has_folder = False
            return
        if not self._written:
            atexit.register(self.make_room)
        self._written += len(code)
        size = config.compilation_cache_max_size
        if 0 <= size < self._written * _LOOKED_AFTER:
            self.make_room()

    def make_room(self) -> None:
        """Remove what was not used for the longest time, if the folder is too large.

        Processes that do so at the same time choose the same files.
        """
        atexit.unregister(self.make_room)
        self._written = 0
        limit = config.compilation_cache_max_size
        if limit < 0:
            return
        entries = self._entries()
        total = sum(size for _, size, _ in entries)
        if total <= limit:
            return
        for _, size, path in sorted(entries):
            if total <= limit * _KEPT_SHARE:
                break
            with contextlib.suppress(OSError):
                os.unlink(path)
            total -= size

    def _entries(self) -> list[tuple[float, int, str]]:
        """Return date, size and path of every entry; remove what was never finished."""
        found = []
        with contextlib.suppress(OSError), os.scandir(self.folder) as files:
            for file in files:
                with contextlib.suppress(OSError):
                    status = file.stat()
                    if file.name.endswith(_ENDING):
                        found.append((status.st_mtime, status.st_size, file.path))
                    elif file.name.endswith(_UNFINISHED) and _is_old(status.st_mtime):
                        os.unlink(file.path)
        return found


_caches: dict[str | None, ObjectCache] = {}


def object_cache() -> ObjectCache | None:
    """Return the cache that the settings ask for."""
    if not config.enable_compilation_cache:
        return None
    chosen = config.compilation_cache_dir
    cache = _caches.get(chosen)
    if cache is None:
        try:
            folder = _user_folder() if chosen is None else Path(os.path.abspath(chosen))
        except (*_FAILURES, RuntimeError):  # a user without a home
            return None
        cache = _caches.setdefault(chosen, ObjectCache(folder / "objects"))
    return cache
