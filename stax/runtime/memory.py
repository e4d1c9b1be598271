"""Recycled memory for large results and arenas.

The one idea: a fresh block of several megabytes costs a page fault per 4 KiB, often more than the
kernel that fills it. So blocks of RECYCLED_BYTES and more go back to a free list when the array
that owned them dies, and the next result of that size finds its pages already mapped. The list is
bounded in bytes; blocks are 64-byte aligned and rounded up to one of four sizes per power of two.
"""

from __future__ import annotations

import ctypes
import functools
import math
import os
import sys
import sysconfig
from typing import Any

import numpy as np

from stax.runtime.engine import CompiledModule, compile_module
from stax.runtime.once import once
from stax.runtime.portable import is_portable

RECYCLED_BYTES = 1 << 20
"""From this size on results are recycled; smaller ones are left to NumPy's allocator."""

_HUGE_PAGES_FROM = 4 << 20
_MAXIMUM_HELD = 2 << 30
_FRACTION_OF_MEMORY = 8

# A block: the pointer malloc gave, its class and its size lie in the 64 bytes before the data.
# While a block is free, the first word of its data is the next free block.
_TEXT = """
%State = type {{ i32, i32, i64, i64, i64, i64 }}
; Lock, unused, bytes held, limit, blocks taken from the list, blocks taken from the system.
@stax_memory = global %State zeroinitializer, align 64
@heads = internal global [256 x ptr] zeroinitializer, align 64
declare noalias ptr @malloc(i64)
declare void @free(ptr)
declare i64 @llvm.ctlz.i64(i64, i1)
declare i64 @llvm.umax.i64(i64, i64)
{huge_declaration}

define internal void @lock() {{
entry:
  br label %try
try:
  %taken = cmpxchg ptr @stax_memory, i32 0, i32 1 acquire monotonic
  %got = extractvalue {{ i32, i1 }} %taken, 1
  br i1 %got, label %exit, label %try
exit:
  ret void
}}

define internal ptr @fresh(i64 %size, i64 %class) noinline {{
entry:
  %total = add i64 %size, 128
  %raw = call ptr @malloc(i64 %total)
  %failed = icmp eq ptr %raw, null
  br i1 %failed, label %none, label %made
none:
  ret ptr null
made:
  %raw.i = ptrtoint ptr %raw to i64
  %past = add i64 %raw.i, 127
  %data.i = and i64 %past, -64
  %data = inttoptr i64 %data.i to ptr
  %raw.p = getelementptr i64, ptr %data, i64 -8
  store ptr %raw, ptr %raw.p
  %class.p = getelementptr i64, ptr %data, i64 -7
  store i64 %class, ptr %class.p
  %size.p = getelementptr i64, ptr %data, i64 -6
  store i64 %size, ptr %size.p
  %big = icmp uge i64 %size, {huge_from}
  br i1 %big, label %advise, label %exit
advise:
  {huge}
  br label %exit
exit:
  ret ptr %data
}}

define ptr @stax_allocate(i64 %bytes) {{
entry:
  %least = call i64 @llvm.umax.i64(i64 %bytes, i64 4096)
  %x = sub i64 %least, 1
  %zeros = call i64 @llvm.ctlz.i64(i64 %x, i1 false)
  %shift = sub i64 61, %zeros
  %quarter = lshr i64 %x, %shift
  %quarter.up = add i64 %quarter, 1
  %size = shl i64 %quarter.up, %shift
  %shift4 = shl i64 %shift, 2
  %quarter.in = and i64 %quarter, 3
  %class = add i64 %shift4, %quarter.in
  %head.p = getelementptr ptr, ptr @heads, i64 %class
  call void @lock()
  %head = load ptr, ptr %head.p
  %empty = icmp eq ptr %head, null
  br i1 %empty, label %miss, label %hit
hit:
  %next = load ptr, ptr %head
  store ptr %next, ptr %head.p
  %held.p = getelementptr %State, ptr @stax_memory, i64 0, i32 2
  %held = load i64, ptr %held.p
  %held.less = sub i64 %held, %size
  store i64 %held.less, ptr %held.p
  %hits.p = getelementptr %State, ptr @stax_memory, i64 0, i32 4
  %hits = load i64, ptr %hits.p
  %hits.more = add i64 %hits, 1
  store i64 %hits.more, ptr %hits.p
  store atomic i32 0, ptr @stax_memory release, align 4
  ret ptr %head
miss:
  %misses.p = getelementptr %State, ptr @stax_memory, i64 0, i32 5
  %misses = load i64, ptr %misses.p
  %misses.more = add i64 %misses, 1
  store i64 %misses.more, ptr %misses.p
  store atomic i32 0, ptr @stax_memory release, align 4
  %data = call ptr @fresh(i64 %size, i64 %class)
  ret ptr %data
}}

define void @stax_release(ptr %data) {{
entry:
  %class.p = getelementptr i64, ptr %data, i64 -7
  %class = load i64, ptr %class.p
  %size.p = getelementptr i64, ptr %data, i64 -6
  %size = load i64, ptr %size.p
  %head.p = getelementptr ptr, ptr @heads, i64 %class
  %held.p = getelementptr %State, ptr @stax_memory, i64 0, i32 2
  %limit.p = getelementptr %State, ptr @stax_memory, i64 0, i32 3
  call void @lock()
  %held = load i64, ptr %held.p
  %limit = load i64, ptr %limit.p
  %more = add i64 %held, %size
  %fits = icmp ule i64 %more, %limit
  br i1 %fits, label %keep, label %drop
keep:
  store i64 %more, ptr %held.p
  %head = load ptr, ptr %head.p
  store ptr %head, ptr %data
  store ptr %data, ptr %head.p
  store atomic i32 0, ptr @stax_memory release, align 4
  ret void
drop:
  store atomic i32 0, ptr @stax_memory release, align 4
  %raw.p = getelementptr i64, ptr %data, i64 -8
  %raw = load ptr, ptr %raw.p
  call void @free(ptr %raw)
  ret void
}}

; Gives the free blocks back to the system.
define void @stax_trim() {{
entry:
  br label %class
class:
  %i = phi i64 [0, %entry], [%next, %emptied]
  %head.p = getelementptr ptr, ptr @heads, i64 %i
  br label %block
block:
  call void @lock()
  %head = load ptr, ptr %head.p
  %empty = icmp eq ptr %head, null
  br i1 %empty, label %emptied, label %give
give:
  %following = load ptr, ptr %head
  store ptr %following, ptr %head.p
  %size.p = getelementptr i64, ptr %head, i64 -6
  %size = load i64, ptr %size.p
  %held.p = getelementptr %State, ptr @stax_memory, i64 0, i32 2
  %held = load i64, ptr %held.p
  %less = sub i64 %held, %size
  store i64 %less, ptr %held.p
  store atomic i32 0, ptr @stax_memory release, align 4
  %raw.p = getelementptr i64, ptr %head, i64 -8
  %raw = load ptr, ptr %raw.p
  call void @free(ptr %raw)
  br label %block
emptied:
  store atomic i32 0, ptr @stax_memory release, align 4
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, 256
  br i1 %more, label %class, label %exit
exit:
  ret void
}}
"""

# MADV_HUGEPAGE, on the whole pages inside the block; it is advice, so its result is not looked at.
_HUGE = """%page.up = add i64 %raw.i, 4095
  %page = and i64 %page.up, -4096
  %page.p = inttoptr i64 %page to ptr
  %length = and i64 %size, -4096
  %advised = call i32 @madvise(ptr %page.p, i64 %length, i32 14)"""


class _State(ctypes.Structure):
    """@stax_memory, as Python reads and writes it."""

    _fields_ = (
        ("lock", ctypes.c_int32),
        ("unused", ctypes.c_int32),
        ("held", ctypes.c_int64),
        ("limit", ctypes.c_int64),
        ("hits", ctypes.c_int64),
        ("misses", ctypes.c_int64),
    )


def _default_limit() -> int:
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return _MAXIMUM_HELD // 4
    return min(_MAXIMUM_HELD, memory // _FRACTION_OF_MEMORY)


class _Allocator:
    """The compiled allocator."""

    def __init__(self) -> None:
        linux = sys.platform == "linux" and not is_portable()
        text = _TEXT.format(
            huge_from=_HUGE_PAGES_FROM,
            huge_declaration="declare i32 @madvise(ptr, i64, i32)" if linux else "",
            huge=_HUGE if linux else "",
        )
        names = ("stax_memory", "stax_allocate", "stax_release", "stax_trim")
        # Arrays may give their block back while the interpreter shuts down.
        self.module: CompiledModule = compile_module(text, names, optimize=False).keep_forever()
        self.state = _State.from_address(self.module.address("stax_memory"))
        self.state.limit = _default_limit()
        pointer, size = ctypes.c_void_p, ctypes.c_int64
        address = self.module.address
        self.allocate = ctypes.PYFUNCTYPE(pointer, size)(address("stax_allocate"))
        self.release = ctypes.PYFUNCTYPE(None, pointer)(address("stax_release"))
        self.trim = ctypes.PYFUNCTYPE(None)(address("stax_trim"))
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._unlock)

    def _unlock(self) -> None:
        # Another thread may have held the lock at the fork; in the child it does not exist.
        self.state.lock = 0


@once
def _allocator() -> _Allocator:
    return _Allocator()


@functools.cache
def _block_type(nbytes: int) -> type[ctypes.Array[ctypes.c_char]]:
    """A buffer that gives its memory back when it dies; arrays keep it as their base."""
    release = _allocator().release

    def give_back(self: ctypes.Array[ctypes.c_char]) -> None:
        release(ctypes.addressof(self))

    return type("Block", (ctypes.c_char * nbytes,), {"__del__": give_back, "is_recycled": True})


def empty(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An uninitialised C-contiguous array; a large one lies in recycled memory."""
    nbytes = math.prod(shape) * dtype.itemsize
    if nbytes < RECYCLED_BYTES:
        return np.empty(shape, dtype)
    address = _allocator().allocate(nbytes)
    if not address:
        raise MemoryError(f"cannot allocate {nbytes} bytes for an array {dtype}{list(shape)}")
    block: Any = _block_type(nbytes).from_address(address)
    return np.ndarray(shape, dtype, block)


_is_capsule = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_IsValid", ctypes.pythonapi)
)


def _count(arrays: list[np.ndarray], i: int) -> int:
    return sys.getrefcount(arrays[i])


@once
def _alone() -> int:
    """What is counted of an array that only a list refers to; 0 where counts say little."""
    if sysconfig.get_config_var("Py_GIL_DISABLED") or not hasattr(sys, "getrefcount"):
        return 0
    return _count([np.empty(1)], 0)


def is_private(arrays: list[np.ndarray], i: int) -> bool:
    """Say whether only the list refers to an array, whose memory is its own or a recycled block."""
    base = arrays[i].base
    if base is None:
        is_own = arrays[i].flags.owndata
    else:
        is_own = hasattr(base, "is_recycled") or bool(_is_capsule(base, b"stax.block"))
    return is_own and _count(arrays, i) == _alone()


def taken(address: int, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An array with the elements at an address that `allocate` gave, which is given back; at 0
    there are none."""
    array = np.empty(shape, dtype)
    if address:
        ctypes.memmove(array.ctypes.data, address, array.nbytes)
        _allocator().release(address)
    return array


class Arena:
    """Scratch memory of one call, 64-byte aligned, given back when this object dies."""

    __slots__ = ("_release", "address")

    def __init__(self, nbytes: int) -> None:
        allocator = _allocator()
        self._release = allocator.release
        self.address: int | None = allocator.allocate(nbytes)
        if not self.address:
            raise MemoryError(f"cannot allocate {nbytes} bytes for the temporaries of a program")

    def __del__(self) -> None:
        if self.address:
            self._release(self.address)


def allocate_address() -> int:
    """The address of `void* allocate(int64_t bytes)`: 64-byte aligned, null when out of memory."""
    return _allocator().module.address("stax_allocate")


def release_address() -> int:
    """The address of `void release(void* data)`, for what `allocate` gave."""
    return _allocator().module.address("stax_release")


def held_bytes() -> int:
    """Bytes in free blocks that wait to be used again."""
    return int(_allocator().state.held)


def statistics() -> dict[str, int]:
    """Bytes held and their limit; blocks served from the list and from the system."""
    state = _allocator().state
    return {name: int(getattr(state, name)) for name in ("held", "limit", "hits", "misses")}


def set_limit(nbytes: int) -> None:
    """Hold at most this many bytes in free blocks from now on."""
    if nbytes < 0:
        raise ValueError(f"the limit of held memory is a number of bytes, got {nbytes}")
    _allocator().state.limit = nbytes
    if held_bytes() > nbytes:
        trim()


def trim() -> None:
    """Give all free blocks back to the system."""
    _allocator().trim()
