"""Matrix products for generated code: BLAS at one thread, called from the one pool.

The one idea: `gemm` splits the longer side of the result into pieces (or a batch into items) and
each piece is a single-threaded BLAS call. The pieces follow from the shapes alone: BLAS may add in
another order for another shape, and results must not depend on how many threads there are. They
are two, and more where each is still long. On two cores this is as fast as BLAS's
own threads where those do well (1024^3: 7.4 against 8.2 ms) and faster elsewhere (64^3: 3.3
against 5.6 us; 128x784 @ 784x512: 455 against 490 us); and with a single pool in the process no
idle BLAS thread spins on the core that the next kernel needs. Splitting the longer side matters:
each piece packs the other operand in full.
"""

from __future__ import annotations

import ctypes
import dataclasses
import os

from stax.runtime.engine import CompiledModule, compile_module

# The product of two 48x48 matrices: below about this a fork costs more than it saves.
_PARALLEL_FLOPS = 220_000
# From 256^3 on, splitting one product is as good as giving each thread one of its own.
_SERIAL_FLOPS = 2 * 256**3
# Rows or columns for two pieces.
_LONG_SIDE = 1024
# Fewer large products than this are computed one after the other, each by all threads.
_PLENTY = 8

# Fields of the descriptor, all int64; strides and leading dimensions count elements.
DESCRIPTOR = (
    "batch", "m", "n", "k", "transpose_a", "transpose_b", "lda", "ldb", "ldc",
    "stride_a", "stride_b", "stride_c", "accumulate",
)  # fmt: skip


@dataclasses.dataclass(frozen=True, slots=True)
class _Element:
    """How one element type is spelled: its LLVM type, and BLAS's one and zero."""

    name: str
    blas: str
    llvm: str
    one: str
    zero: str


_ELEMENTS = (
    _Element("f32", "sgemm", "float", "1.0", "0.0"),
    _Element("f64", "dgemm", "double", "1.0", "0.0"),
    _Element("c64", "cgemm", "[2 x float]", "[float 1.0, float 0.0]", "[float 0.0, float 0.0]"),
    _Element(
        "c128", "zgemm", "[2 x double]", "[double 1.0, double 0.0]", "[double 0.0, double 0.0]"
    ),
)

_SHARED = """
@n = internal constant i8 78
@t = internal constant i8 84
; How the context reaches this code: parallel_for, and BLAS's thread count (null if unknown).
@stax_blas_services = global [3 x ptr] zeroinitializer, align 64
; Lock, users, the thread count to restore.
@stax_blas_state = global [3 x i32] zeroinitializer, align 64
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

define internal void @lock() {
entry:
  br label %try
try:
  %taken = cmpxchg ptr @stax_blas_state, i32 0, i32 1 acquire monotonic
  %got = extractvalue { i32, i1 } %taken, 1
  br i1 %got, label %exit, label %try
exit:
  ret void
}
define internal void @unlock() {
  store atomic i32 0, ptr @stax_blas_state release, align 4
  ret void
}

; The first user sets BLAS to one thread.
define void @stax_blas_begin() {
entry:
  %get.p = getelementptr ptr, ptr @stax_blas_services, i64 1
  %get = load ptr, ptr %get.p
  %unknown = icmp eq ptr %get, null
  br i1 %unknown, label %exit, label %known
known:
  call void @lock()
  %users.p = getelementptr i32, ptr @stax_blas_state, i64 1
  %users = load i32, ptr %users.p
  %more = add i32 %users, 1
  store i32 %more, ptr %users.p
  %first = icmp eq i32 %users, 0
  br i1 %first, label %save, label %unlock
save:
  %count = call i32 %get()
  %saved.p = getelementptr i32, ptr @stax_blas_state, i64 2
  store i32 %count, ptr %saved.p
  %single = icmp eq i32 %count, 1
  br i1 %single, label %unlock, label %set
set:
  %set.p = getelementptr ptr, ptr @stax_blas_services, i64 2
  %set.f = load ptr, ptr %set.p
  call void %set.f(i32 1)
  br label %unlock
unlock:
  call void @unlock()
  br label %exit
exit:
  ret void
}

; The last user restores BLAS's thread count.
define void @stax_blas_end() {
entry:
  %get.p = getelementptr ptr, ptr @stax_blas_services, i64 1
  %get = load ptr, ptr %get.p
  %unknown = icmp eq ptr %get, null
  br i1 %unknown, label %exit, label %known
known:
  call void @lock()
  %users.p = getelementptr i32, ptr @stax_blas_state, i64 1
  %users = load i32, ptr %users.p
  %less = sub i32 %users, 1
  store i32 %less, ptr %users.p
  %saved.p = getelementptr i32, ptr @stax_blas_state, i64 2
  %saved = load i32, ptr %saved.p
  %last = icmp eq i32 %less, 0
  %several = icmp ne i32 %saved, 1
  %restore = and i1 %last, %several
  br i1 %restore, label %set, label %unlock
set:
  %set.p = getelementptr ptr, ptr @stax_blas_services, i64 2
  %set.f = load ptr, ptr %set.p
  call void %set.f(i32 %saved)
  br label %unlock
unlock:
  call void @unlock()
  br label %exit
exit:
  ret void
}
"""

_FIELDS = "\n".join(
    f"  %{name}.p = getelementptr i64, ptr %d, i64 {i}\n  %{name} = load i64, ptr %{name}.p"
    for i, name in enumerate(DESCRIPTOR)
)

# @piece runs iterations [begin, end): items of a batch when batch > 1, else blocks of `block` rows
# or columns. d[13] is the block, d[14] tells whether columns are split. BLAS is column-major, so
# it is asked for the transposed product: B's side comes first.
_ELEMENT = """
@one.{name} = internal constant {llvm} {one}
@zero.{name} = internal constant {llvm} {zero}

define internal void @blas.{name}(ptr %f, ptr %d, ptr %a, ptr %b, ptr %c, i64 %rows,
                                  i64 %columns) {{
  {fields}
  %sizes = alloca [6 x i32], align 16
  %n.p32 = getelementptr i32, ptr %sizes, i64 0
  %n32 = trunc i64 %columns to i32
  store i32 %n32, ptr %n.p32
  %m.p32 = getelementptr i32, ptr %sizes, i64 1
  %m32 = trunc i64 %rows to i32
  store i32 %m32, ptr %m.p32
  %k.p32 = getelementptr i32, ptr %sizes, i64 2
  %k32 = trunc i64 %k to i32
  store i32 %k32, ptr %k.p32
  %ldb.p32 = getelementptr i32, ptr %sizes, i64 3
  %ldb32 = trunc i64 %ldb to i32
  store i32 %ldb32, ptr %ldb.p32
  %lda.p32 = getelementptr i32, ptr %sizes, i64 4
  %lda32 = trunc i64 %lda to i32
  store i32 %lda32, ptr %lda.p32
  %ldc.p32 = getelementptr i32, ptr %sizes, i64 5
  %ldc32 = trunc i64 %ldc to i32
  store i32 %ldc32, ptr %ldc.p32
  %is.ta = icmp ne i64 %transpose_a, 0
  %ta = select i1 %is.ta, ptr @t, ptr @n
  %is.tb = icmp ne i64 %transpose_b, 0
  %tb = select i1 %is.tb, ptr @t, ptr @n
  %is.acc = icmp ne i64 %accumulate, 0
  %beta = select i1 %is.acc, ptr @one.{name}, ptr @zero.{name}
  call void %f(ptr %tb, ptr %ta, ptr %n.p32, ptr %m.p32, ptr %k.p32, ptr @one.{name},
               ptr %b, ptr %ldb.p32, ptr %a, ptr %lda.p32, ptr %beta, ptr %c, ptr %ldc.p32)
  ret void
}}

define internal void @piece.{name}(ptr %buffers, ptr %d, i64 %begin, i64 %end) {{
entry:
  {fields}
  %block.p = getelementptr i64, ptr %d, i64 13
  %block = load i64, ptr %block.p
  %columns.p = getelementptr i64, ptr %d, i64 14
  %columns.split = load i64, ptr %columns.p
  %a = load ptr, ptr %buffers
  %b.p = getelementptr ptr, ptr %buffers, i64 1
  %b = load ptr, ptr %b.p
  %c.p = getelementptr ptr, ptr %buffers, i64 2
  %c = load ptr, ptr %c.p
  %f.p = getelementptr ptr, ptr %buffers, i64 3
  %f = load ptr, ptr %f.p
  %batched = icmp sgt i64 %batch, 1
  br i1 %batched, label %item, label %split
item:
  %i = phi i64 [%begin, %entry], [%next, %item]
  %a.o = mul i64 %i, %stride_a
  %a.i = getelementptr {llvm}, ptr %a, i64 %a.o
  %b.o = mul i64 %i, %stride_b
  %b.i = getelementptr {llvm}, ptr %b, i64 %b.o
  %c.o = mul i64 %i, %stride_c
  %c.i = getelementptr {llvm}, ptr %c, i64 %c.o
  call void @blas.{name}(ptr %f, ptr %d, ptr %a.i, ptr %b.i, ptr %c.i, i64 %m, i64 %n)
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %end
  br i1 %more, label %item, label %exit
split:
  %by.columns = icmp ne i64 %columns.split, 0
  %side = select i1 %by.columns, i64 %n, i64 %m
  %is.tb = icmp ne i64 %transpose_b, 0
  %is.ta = icmp ne i64 %transpose_a, 0
  br label %part
part:
  %p = phi i64 [%begin, %split], [%p.next, %part.done]
  %p.next = add i64 %p, 1
  %from = mul i64 %p, %block
  %to.all = add i64 %from, %block
  %to = call i64 @llvm.smin.i64(i64 %to.all, i64 %side)
  %length = sub i64 %to, %from
  br i1 %by.columns, label %columns, label %rows
columns:
  %b.far = mul i64 %from, %ldb
  %b.off = select i1 %is.tb, i64 %b.far, i64 %from
  %b.c = getelementptr {llvm}, ptr %b, i64 %b.off
  %c.c = getelementptr {llvm}, ptr %c, i64 %from
  call void @blas.{name}(ptr %f, ptr %d, ptr %a, ptr %b.c, ptr %c.c, i64 %m, i64 %length)
  br label %part.done
rows:
  %a.far = mul i64 %from, %lda
  %a.off = select i1 %is.ta, i64 %from, i64 %a.far
  %a.r = getelementptr {llvm}, ptr %a, i64 %a.off
  %c.off = mul i64 %from, %ldc
  %c.r = getelementptr {llvm}, ptr %c, i64 %c.off
  call void @blas.{name}(ptr %f, ptr %d, ptr %a.r, ptr %b, ptr %c.r, i64 %length, i64 %n)
  br label %part.done
part.done:
  %p.more = icmp slt i64 %p.next, %end
  br i1 %p.more, label %part, label %exit
exit:
  ret void
}}

@stax_blas.{name} = global ptr null

define void @stax_gemm.{name}(ptr %a, ptr %b, ptr %c, ptr %d) {{
entry:
  {fields}
  %buffers = alloca [4 x ptr], align 16
  %plan = alloca [15 x i64], align 16
  %mn = mul i64 %m, %n
  %elements = mul i64 %mn, %batch
  %empty = icmp eq i64 %elements, 0
  br i1 %empty, label %exit, label %work
work:
  %f = load ptr, ptr @stax_blas.{name}
  store ptr %a, ptr %buffers
  %b.p = getelementptr ptr, ptr %buffers, i64 1
  store ptr %b, ptr %b.p
  %c.p = getelementptr ptr, ptr %buffers, i64 2
  store ptr %c, ptr %c.p
  %f.p = getelementptr ptr, ptr %buffers, i64 3
  store ptr %f, ptr %f.p
  call void @llvm.memcpy.p0.p0.i64(ptr align 8 %plan, ptr align 8 %d, i64 104, i1 false)
  %k1 = call i64 @llvm.smax.i64(i64 %k, i64 1)
  %mnk = mul i64 %mn, %k1
  %flops = mul i64 %mnk, 2
  %large = icmp sge i64 %flops, {parallel_flops}
  %batched = icmp sgt i64 %batch, 1
  ; A few large products one after the other, each over all threads, rather than one per thread.
  %scarce = icmp slt i64 %batch, {plenty}
  %huge = icmp sge i64 %flops, {serial_flops}
  %scarce.huge = and i1 %scarce, %huge
  %one.by.one = and i1 %batched, %scarce.huge
  br i1 %one.by.one, label %items.start, label %together
items.start:
  store i64 1, ptr %plan
  br label %items.loop
items.loop:
  %i = phi i64 [0, %items.start], [%next, %items.loop]
  %a.o = mul i64 %i, %stride_a
  %a.i = getelementptr {llvm}, ptr %a, i64 %a.o
  %b.o = mul i64 %i, %stride_b
  %b.i = getelementptr {llvm}, ptr %b, i64 %b.o
  %c.o = mul i64 %i, %stride_c
  %c.i = getelementptr {llvm}, ptr %c, i64 %c.o
  call void @stax_gemm.{name}(ptr %a.i, ptr %b.i, ptr %c.i, ptr %plan)
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %batch
  br i1 %more, label %items.loop, label %exit
together:
  %by.columns = icmp sgt i64 %n, %m
  %flag = zext i1 %by.columns to i64
  %flag.p = getelementptr i64, ptr %plan, i64 14
  store i64 %flag, ptr %flag.p
  %side = call i64 @llvm.smax.i64(i64 %m, i64 %n)
  ; A block is a multiple of 16 rows or columns, which is what BLAS computes at a time.
  ; More pieces where each is still long, so that a core busy elsewhere does fewer.
  %longs = udiv i64 %side, {long_side}
  %longs.1 = call i64 @llvm.smax.i64(i64 %longs, i64 1)
  %pieces.large = shl i64 %longs.1, 1
  %pieces.wanted = select i1 %large, i64 %pieces.large, i64 1
  %up = add i64 %side, %pieces.wanted
  %up.less = sub i64 %up, 1
  %share = udiv i64 %up.less, %pieces.wanted
  %share.up = add i64 %share, 15
  %block = and i64 %share.up, -16
  %block.p = getelementptr i64, ptr %plan, i64 13
  store i64 %block, ptr %block.p
  %side.up = add i64 %side, %block
  %side.less = sub i64 %side.up, 1
  %pieces = udiv i64 %side.less, %block
  %n.tasks = select i1 %batched, i64 %batch, i64 %pieces
  %few = udiv i64 {parallel_flops}, %flops
  %items = add i64 %few, 1
  %grain = select i1 %batched, i64 %items, i64 1
  %parallel = load ptr, ptr @stax_blas_services
  call void @stax_blas_begin()
  call void %parallel(ptr @piece.{name}, ptr %buffers, ptr %plan, i64 %n.tasks, i64 %grain)
  call void @stax_blas_end()
  br label %exit
exit:
  ret void
}}
"""


class _State(ctypes.Structure):
    """@stax_blas_state, as Python reads and writes it."""

    _fields_ = (
        ("lock", ctypes.c_int32),
        ("users", ctypes.c_int32),
        ("saved_count", ctypes.c_int32),
    )


def _text() -> str:
    parts = [_SHARED]
    for element in _ELEMENTS:
        part = _ELEMENT.format(
            **dataclasses.asdict(element),
            fields=_FIELDS,
            parallel_flops=_PARALLEL_FLOPS,
            serial_flops=_SERIAL_FLOPS,
            long_side=_LONG_SIDE,
            plenty=_PLENTY,
        )
        parts.append(part)
    return "\n".join(parts)


class Products:
    """The compiled drivers, connected to the pool and to BLAS.

    `thread_control` holds the addresses of `int get()` and `void set(int)` for BLAS's own thread
    count, or None where they are unknown; BLAS then keeps the count it has.
    """

    def __init__(self, parallel_for: int, thread_control: tuple[int, int] | None) -> None:
        names = [f"stax_{kind}.{e.name}" for e in _ELEMENTS for kind in ("gemm", "blas")]
        names += [f"stax_blas_{word}" for word in ("services", "state", "begin", "end")]
        self._module: CompiledModule = compile_module(_text(), names, optimize=False).keep_forever()
        services = (ctypes.c_void_p * 3).from_address(self.address("stax_blas_services"))
        services[0] = parallel_for
        self._set_count = None
        if thread_control is not None:
            services[1], services[2] = thread_control
            self._set_count = ctypes.CFUNCTYPE(None, ctypes.c_int)(thread_control[1])
        self._state = _State.from_address(self.address("stax_blas_state"))
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget_users)

    def address(self, name: str) -> int:
        return self._module.address(name)

    def connect(self, element: str, routine: int) -> int:
        """Give the driver for `element` (f32, f64, c64, c128) its BLAS routine; returns the driver:
        void(void* a, void* b, void* c, int64_t* descriptor), with the fields of DESCRIPTOR."""
        ctypes.c_void_p.from_address(self.address(f"stax_blas.{element}")).value = routine
        return self.address(f"stax_gemm.{element}")

    def _forget_users(self) -> None:
        # In the child of fork() the products of other threads do not exist.
        if self._state.users and self._set_count is not None:
            self._set_count(self._state.saved_count)
        self._state.lock = self._state.users = 0
