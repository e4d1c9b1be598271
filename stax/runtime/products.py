"""Matrix products for generated code: BLAS at one thread, called from the one pool.

The one idea: `gemm` splits the longer side of the result into pieces (or a batch into items) and
each piece is a single-threaded BLAS call. The pieces follow from the shapes alone: BLAS may add in
another order for another shape, and results must not depend on how many threads there are. They
are two, and more where each is still long. A small product of long sums is split along its sums
instead, and the two halves are added. A piece of medium size is cut into tiles (product_tiles.py).

On two cores this is as fast as BLAS's own threads where those do well (1024^3: 7.4 against 8.2 ms)
and faster elsewhere (64^3: 3.3 against 5.6 us); and with a single pool in the process no idle BLAS
thread spins on the core that the next kernel needs. Splitting the longer side matters: each piece
packs the other operand in full.
"""

from __future__ import annotations

import ctypes
import os
from typing import NamedTuple

from stax.runtime.engine import CompiledModule, compile_module, target
from stax.runtime.product_tiles import tiles

# The product of two 48x48 matrices: below about this a fork costs more than it saves.
_PARALLEL_FLOPS = 220_000
# From 256^3 on, splitting one product is as good as giving each thread one of its own.
_SERIAL_FLOPS = 2 * 256**3
# Rows or columns for two pieces.
_LONG_SIDE = 1024
# Fewer large products than this are computed one after the other, each by all threads.
_PLENTY = 8

# Sums from so long on, and so many times the longer side, are split where the result is small
# enough for a copy of it on the stack; and so many terms go to BLAS at a time (20 % faster).
_LONG_SUM, _SUM_TO_SIDE, _SMALL_RESULT, _TERMS = 1024, 8, 1 << 14, 2048

# Fields of the descriptor, all int64; strides, offsets and leading dimensions count elements. Item
# i of the batch lies (i / inner) strides and (i % inner) inner strides from the first.
DESCRIPTOR = (
    "batch", "inner", "m", "n", "k", "transpose_a", "transpose_b", "lda", "ldb", "ldc",
    "stride_a", "stride_b", "stride_c", "inner_a", "inner_b", "inner_c", "offset_a", "offset_b",
    "accumulate",
)  # fmt: skip


class _Element(NamedTuple):
    """How one element type is spelled: its LLVM type, and BLAS's one and zero."""

    llvm: str
    one: str
    zero: str


_ELEMENTS = {
    "f32": _Element("float", "1.0", "0.0"),
    "f64": _Element("double", "1.0", "0.0"),
    "c64": _Element("[2 x float]", "[float 1.0, float 0.0]", "[float 0.0, float 0.0]"),
    "c128": _Element("[2 x double]", "[double 1.0, double 0.0]", "[double 0.0, double 0.0]"),
}

_SHARED = """
; How the context reaches this code: BLAS's thread count, to get and to set (null if unknown).
@stax_blas_services = global [2 x ptr] zeroinitializer, align 64
; Lock, users, the thread count to restore.
@stax_blas_state = global [3 x i32] zeroinitializer, align 64

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
  %get = load ptr, ptr @stax_blas_services
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
  %set.p = getelementptr ptr, ptr @stax_blas_services, i64 1
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
  %get = load ptr, ptr @stax_blas_services
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
  %set.p = getelementptr ptr, ptr @stax_blas_services, i64 1
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

# @piece runs iterations [begin, end): items of a batch when batch > 1, else blocks of `block` rows,
# columns or terms. {block} is the block in the plan, {along} what is split: 0 rows, 1 columns,
# 2 terms. BLAS is column-major, so it is asked for the transposed product: B's side comes first.
_ELEMENT = """
@n = internal constant i8 78
@t = internal constant i8 84
@one = internal constant {llvm} {one}
@zero = internal constant {llvm} {zero}
; Where things are: BLAS's routine, parallel_for, stax_blas_begin, stax_blas_end.
@stax_gemm_services.{name} = global [4 x ptr] zeroinitializer, align 64
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

define internal void @blas(ptr %d, ptr %a, ptr %b, ptr %c, i64 %rows, i64 %columns, i64 %terms,
                           i1 %adds, i1 %is.tb, i64 %b.apart) {{
  {fields}
  %sizes = alloca [6 x i32], align 16
  %n.p32 = getelementptr i32, ptr %sizes, i64 0
  %n32 = trunc i64 %columns to i32
  store i32 %n32, ptr %n.p32
  %m.p32 = getelementptr i32, ptr %sizes, i64 1
  %m32 = trunc i64 %rows to i32
  store i32 %m32, ptr %m.p32
  %k.p32 = getelementptr i32, ptr %sizes, i64 2
  %k32 = trunc i64 %terms to i32
  store i32 %k32, ptr %k.p32
  %ldb.p32 = getelementptr i32, ptr %sizes, i64 3
  %ldb32 = trunc i64 %b.apart to i32
  store i32 %ldb32, ptr %ldb.p32
  %lda.p32 = getelementptr i32, ptr %sizes, i64 4
  %lda32 = trunc i64 %lda to i32
  store i32 %lda32, ptr %lda.p32
  %ldc.p32 = getelementptr i32, ptr %sizes, i64 5
  %ldc32 = trunc i64 %ldc to i32
  store i32 %ldc32, ptr %ldc.p32
  %is.ta = icmp ne i64 %transpose_a, 0
  %ta = select i1 %is.ta, ptr @t, ptr @n
  %tb = select i1 %is.tb, ptr @t, ptr @n
  %beta = select i1 %adds, ptr @one, ptr @zero
  %f = load ptr, ptr @stax_gemm_services.{name}
  call void %f(ptr %tb, ptr %ta, ptr %n.p32, ptr %m.p32, ptr %k.p32, ptr @one,
               ptr %b, ptr %ldb.p32, ptr %a, ptr %lda.p32, ptr %beta, ptr %c, ptr %ldc.p32)
  ret void
}}

{tiles}
define internal i64 @place(i64 %i, i64 %inner, i64 %stride, i64 %inner.stride) {{
  %outer.i = udiv i64 %i, %inner
  %inner.i = urem i64 %i, %inner
  %far = mul i64 %outer.i, %stride
  %near = mul i64 %inner.i, %inner.stride
  %place = add i64 %far, %near
  ret i64 %place
}}

define internal void @piece(ptr %buffers, ptr %d, i64 %begin, i64 %end) {{
entry:
  {fields}
  %block.p = getelementptr i64, ptr %d, i64 {block}
  %block = load i64, ptr %block.p
  %along.p = getelementptr i64, ptr %d, i64 {along}
  %along = load i64, ptr %along.p
  %a = load ptr, ptr %buffers
  %b.p = getelementptr ptr, ptr %buffers, i64 1
  %b = load ptr, ptr %b.p
  %c.p = getelementptr ptr, ptr %buffers, i64 2
  %c = load ptr, ptr %c.p
  %packed = alloca [{copied} x {llvm}], align 64
  %adds = icmp ne i64 %accumulate, 0
  %batched = icmp sgt i64 %batch, 1
  br i1 %batched, label %item, label %split
item:
  %i = phi i64 [%begin, %entry], [%next, %item]
  %a.o = call i64 @place(i64 %i, i64 %inner, i64 %stride_a, i64 %inner_a)
  %a.i = getelementptr {llvm}, ptr %a, i64 %a.o
  %b.o = call i64 @place(i64 %i, i64 %inner, i64 %stride_b, i64 %inner_b)
  %b.i = getelementptr {llvm}, ptr %b, i64 %b.o
  %c.o = call i64 @place(i64 %i, i64 %inner, i64 %stride_c, i64 %inner_c)
  %c.i = getelementptr {llvm}, ptr %c, i64 %c.o
  call void @tiles(ptr %d, ptr %a.i, ptr %b.i, ptr %c.i, i64 %m, i64 %n, i64 %k, i1 %adds,
                   ptr %packed)
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %end
  br i1 %more, label %item, label %exit
split:
  %by.columns = icmp eq i64 %along, 1
  %by.terms = icmp eq i64 %along, 2
  %side.mn = select i1 %by.columns, i64 %n, i64 %m
  %side = select i1 %by.terms, i64 %k, i64 %side.mn
  %is.tb = icmp ne i64 %transpose_b, 0
  %is.ta = icmp ne i64 %transpose_a, 0
  ; How far one row of A lies from the next, one column of B, and one term of each.
  %a.row = select i1 %is.ta, i64 1, i64 %lda
  %a.term = select i1 %is.ta, i64 %lda, i64 1
  %b.column = select i1 %is.tb, i64 %ldb, i64 1
  %b.term = select i1 %is.tb, i64 1, i64 %ldb
  br label %part
part:
  %p = phi i64 [%begin, %split], [%p.next, %part.done]
  %p.next = add i64 %p, 1
  %from = mul i64 %p, %block
  %to.all = add i64 %from, %block
  %to = call i64 @llvm.smin.i64(i64 %to.all, i64 %side)
  %length = sub i64 %to, %from
  br i1 %by.terms, label %terms, label %sides
sides:
  %row.from = select i1 %by.columns, i64 0, i64 %from
  %column.from = select i1 %by.columns, i64 %from, i64 0
  %rows = select i1 %by.columns, i64 %m, i64 %length
  %columns = select i1 %by.columns, i64 %length, i64 %n
  %a.off = mul i64 %row.from, %a.row
  %a.p = getelementptr {llvm}, ptr %a, i64 %a.off
  %b.off = mul i64 %column.from, %b.column
  %b.q = getelementptr {llvm}, ptr %b, i64 %b.off
  %c.far = mul i64 %row.from, %ldc
  %c.off = add i64 %c.far, %column.from
  %c.q = getelementptr {llvm}, ptr %c, i64 %c.off
  call void @tiles(ptr %d, ptr %a.p, ptr %b.q, ptr %c.q, i64 %rows, i64 %columns, i64 %k,
                   i1 %adds, ptr %packed)
  br label %part.done
terms:
  ; The first part goes to the result, the second to memory of its own.
  %c.index = add i64 %p, 2
  %c.at = getelementptr ptr, ptr %buffers, i64 %c.index
  %c.own = load ptr, ptr %c.at
  %first = icmp eq i64 %p, 0
  %first.adds = and i1 %first, %adds
  br label %chunk
chunk:
  %t = phi i64 [%from, %terms], [%t.next, %chunk]
  %t.adds = phi i1 [%first.adds, %terms], [true, %chunk]
  %t.all = add i64 %t, {terms}
  %t.next = call i64 @llvm.smin.i64(i64 %t.all, i64 %to)
  %t.length = sub i64 %t.next, %t
  %a.t = mul i64 %t, %a.term
  %a.tp = getelementptr {llvm}, ptr %a, i64 %a.t
  %b.t = mul i64 %t, %b.term
  %b.tp = getelementptr {llvm}, ptr %b, i64 %b.t
  call void @tiles(ptr %d, ptr %a.tp, ptr %b.tp, ptr %c.own, i64 %m, i64 %n, i64 %t.length,
                   i1 %t.adds, ptr %packed)
  %t.more = icmp slt i64 %t.next, %to
  br i1 %t.more, label %chunk, label %part.done
part.done:
  %p.more = icmp slt i64 %p.next, %end
  br i1 %p.more, label %part, label %exit
exit:
  ret void
}}

define internal void @add(ptr %c, ptr %other, i64 %count) {{
entry:
  %some = icmp sgt i64 %count, 0
  br i1 %some, label %number, label %exit
number:
  %i = phi i64 [0, %entry], [%next, %number]
  %c.p = getelementptr {real}, ptr %c, i64 %i
  %x = load {real}, ptr %c.p
  %o.p = getelementptr {real}, ptr %other, i64 %i
  %y = load {real}, ptr %o.p
  %sum = fadd {real} %x, %y
  store {real} %sum, ptr %c.p
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %count
  br i1 %more, label %number, label %exit
exit:
  ret void
}}

define void @stax_gemm.{name}(ptr %a.all, ptr %b.all, ptr %c, ptr %d) {{
entry:
  {fields}
  %a = getelementptr {llvm}, ptr %a.all, i64 %offset_a
  %b = getelementptr {llvm}, ptr %b.all, i64 %offset_b
  %buffers = alloca [4 x ptr], align 16
  %plan = alloca [{length} x i64], align 16
  %mn = mul i64 %m, %n
  %elements = mul i64 %mn, %batch
  %empty = icmp eq i64 %elements, 0
  br i1 %empty, label %exit, label %work
work:
  store ptr %a, ptr %buffers
  %b.p = getelementptr ptr, ptr %buffers, i64 1
  store ptr %b, ptr %b.p
  %c.p = getelementptr ptr, ptr %buffers, i64 2
  store ptr %c, ptr %c.p
  call void @llvm.memcpy.p0.p0.i64(ptr align 8 %plan, ptr align 8 %d, i64 {nbytes}, i1 false)
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
  %offset_a.p2 = getelementptr i64, ptr %plan, i64 {offset_a}
  store i64 0, ptr %offset_a.p2
  %offset_b.p2 = getelementptr i64, ptr %plan, i64 {offset_b}
  store i64 0, ptr %offset_b.p2
  br label %items.loop
items.loop:
  %i = phi i64 [0, %items.start], [%next, %items.loop]
  %a.o = call i64 @place(i64 %i, i64 %inner, i64 %stride_a, i64 %inner_a)
  %a.i = getelementptr {llvm}, ptr %a, i64 %a.o
  %b.o = call i64 @place(i64 %i, i64 %inner, i64 %stride_b, i64 %inner_b)
  %b.i = getelementptr {llvm}, ptr %b, i64 %b.o
  %c.o = call i64 @place(i64 %i, i64 %inner, i64 %stride_c, i64 %inner_c)
  %c.i = getelementptr {llvm}, ptr %c, i64 %c.o
  call void @stax_gemm.{name}(ptr %a.i, ptr %b.i, ptr %c.i, ptr %plan)
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %batch
  br i1 %more, label %items.loop, label %exit
together:
  %side.mn = call i64 @llvm.smax.i64(i64 %m, i64 %n)
  %many.terms = icmp sge i64 %k, {long_sum}
  %side.times = mul i64 %side.mn, {sum_to_side}
  %longest = icmp sge i64 %k, %side.times
  %dense = icmp eq i64 %ldc, %n
  %small = icmp sle i64 %mn, {small_result}
  %terms.1 = and i1 %many.terms, %longest
  %terms.2 = and i1 %dense, %small
  %terms.3 = and i1 %terms.1, %terms.2
  %single = xor i1 %batched, true
  %terms.4 = and i1 %terms.3, %single
  %by.terms = and i1 %terms.4, %large
  %by.columns = icmp sge i64 %n, %m
  %flag = zext i1 %by.columns to i64
  %along = select i1 %by.terms, i64 2, i64 %flag
  %along.p = getelementptr i64, ptr %plan, i64 {along}
  store i64 %along, ptr %along.p
  %side = select i1 %by.terms, i64 %k, i64 %side.mn
  ; A block is a multiple of 16 rows or columns, which is what BLAS computes at a time.
  ; More pieces where each is still long, so that a core busy elsewhere does fewer.
  %longs = udiv i64 %side, {long_side}
  %longs.1 = call i64 @llvm.smax.i64(i64 %longs, i64 1)
  %longs.2 = select i1 %by.terms, i64 1, i64 %longs.1
  %pieces.large = shl i64 %longs.2, 1
  %pieces.wanted = select i1 %large, i64 %pieces.large, i64 1
  %up = add i64 %side, %pieces.wanted
  %up.less = sub i64 %up, 1
  %share = udiv i64 %up.less, %pieces.wanted
  %share.up = add i64 %share, 15
  %block = and i64 %share.up, -16
  %block.p = getelementptr i64, ptr %plan, i64 {block}
  store i64 %block, ptr %block.p
  %side.up = add i64 %side, %block
  %side.less = sub i64 %side.up, 1
  %pieces = udiv i64 %side.less, %block
  %n.tasks = select i1 %batched, i64 %batch, i64 %pieces
  %few = udiv i64 {parallel_flops}, %flops
  %items = add i64 %few, 1
  %grain = select i1 %batched, i64 %items, i64 1
  %own.count = select i1 %by.terms, i64 %mn, i64 1
  %own = alloca {llvm}, i64 %own.count, align 64
  %own.p = getelementptr ptr, ptr %buffers, i64 3
  store ptr %own, ptr %own.p
  %parallel.p = getelementptr ptr, ptr @stax_gemm_services.{name}, i64 1
  %parallel = load ptr, ptr %parallel.p
  %begin.p = getelementptr ptr, ptr @stax_gemm_services.{name}, i64 2
  %begin = load ptr, ptr %begin.p
  %end.p = getelementptr ptr, ptr @stax_gemm_services.{name}, i64 3
  %end = load ptr, ptr %end.p
  call void %begin()
  call void %parallel(ptr @piece, ptr %buffers, ptr %plan, i64 %n.tasks, i64 %grain)
  call void %end()
  br i1 %by.terms, label %sum, label %exit
sum:
  %numbers = mul i64 %mn, {reals}
  call void @add(ptr %c, ptr %own, i64 %numbers)
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


def _text(name: str, has_small_kernels: bool) -> str:
    element, fields = _ELEMENTS[name], len(DESCRIPTOR)
    cut, copied = tiles(element.llvm, _FIELDS, has_small_kernels)
    return _ELEMENT.format(
        name=name,
        tiles=cut,
        copied=copied,
        llvm=element.llvm,
        one=element.one,
        zero=element.zero,
        real=element.llvm.removeprefix("[2 x ").removesuffix("]"),
        reals=2 if element.llvm.startswith("[2") else 1,
        fields=_FIELDS,
        block=fields,
        along=fields + 1,
        length=fields + 2,
        nbytes=8 * fields,
        offset_a=DESCRIPTOR.index("offset_a"),
        offset_b=DESCRIPTOR.index("offset_b"),
        parallel_flops=_PARALLEL_FLOPS,
        serial_flops=_SERIAL_FLOPS,
        long_side=_LONG_SIDE,
        plenty=_PLENTY,
        long_sum=_LONG_SUM,
        sum_to_side=_SUM_TO_SIDE,
        small_result=_SMALL_RESULT,
        terms=_TERMS,
    )


class Products:
    """The compiled drivers, connected to the pool and to BLAS; that of a type when it is needed.

    `thread_control` holds the addresses of `int get()` and `void set(int)` for BLAS's own thread
    count, or None where they are unknown; BLAS then keeps the count it has.
    """

    def __init__(self, parallel_for: int, thread_control: tuple[int, int] | None) -> None:
        names = [f"stax_blas_{word}" for word in ("services", "state", "begin", "end")]
        self._module = compile_module(_SHARED, names, optimize=False).keep_forever()
        self._drivers: list[CompiledModule] = []
        self._parallel_for = parallel_for
        self._set_count = None
        if thread_control is not None:
            services = (ctypes.c_void_p * 2).from_address(self.address("stax_blas_services"))
            services[0], services[1] = thread_control
            self._set_count = ctypes.CFUNCTYPE(None, ctypes.c_int)(thread_control[1])
        self._state = _State.from_address(self.address("stax_blas_state"))
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget_users)

    def address(self, name: str) -> int:
        return self._module.address(name)

    def connect(self, element: str, routine: int) -> int:
        """Return a new driver for `element` (f32, f64, c64, c128) that calls this routine of BLAS:
        void(void* a, void* b, void* c, int64_t* descriptor), with the fields of DESCRIPTOR."""
        names = (f"stax_gemm.{element}", f"stax_gemm_services.{element}")
        # The libraries whose thread count is known are OpenBLAS.
        has_small = self._set_count is not None and "+avx512f" in target().features
        text = _text(element, has_small)
        module = compile_module(text, names, optimize=False).keep_forever()
        self._drivers.append(module)
        services = (ctypes.c_void_p * 4).from_address(module.address(names[1]))
        services[0], services[1] = routine, self._parallel_for
        services[2], services[3] = map(self.address, ("stax_blas_begin", "stax_blas_end"))
        return module.address(names[0])

    def _forget_users(self) -> None:
        # In the child of fork() the products of other threads do not exist.
        if self._state.users and self._set_count is not None:
            self._set_count(self._state.saved_count)
        self._state.lock = self._state.users = 0
