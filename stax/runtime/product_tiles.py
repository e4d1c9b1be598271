"""Matrix products cut into tiles, each small enough for the kernels that BLAS has for small ones.

OpenBLAS multiplies matrices of up to a million multiplications where they lie, on processors with
AVX-512, 5 to 40 % faster than its blocked algorithm larger ones.  A tile is such a product.  Of the
second operand a tile is first copied to memory of the thread, with rows of a multiple of 64 bytes:
it is read once for each tile of rows, and transposed on the way, which those kernels do slowly.

How a product is cut follows from its lengths alone, and copies are of the same numbers, so its
bits do not depend on where operands lie.
"""

from __future__ import annotations

from collections.abc import Iterator

# Multiplications of a tile, and of the products that are cut: beyond them BLAS's own blocks win.
MOST_IN_TILE, MOST_IN_ALL = 1_000_000, 1 << 28
# The longest sides of a tile: rows, columns and terms; up to ONE_TILE columns are not cut. Below so
# many rows a copy does not pay.
ROWS, COLUMNS, ONE_TILE, TERMS, FEWEST_ROWS = 128, 64, 96, 256, 8
# The sides of a square that is transposed at a time; 16 would take longer to compile than it saves.
_LANES = 8

_TILES = """
define internal void @tiles(ptr %d, ptr %a, ptr %b, ptr %c, i64 %rows, i64 %columns, i64 %terms,
                            i1 %adds, ptr %packed) {{
entry:
  {fields}
  %is.tb = icmp ne i64 %transpose_b, 0
  %is.ta = icmp ne i64 %transpose_a, 0
  %rc = mul i64 %rows, %columns
  %all = mul i64 %rc, %terms
  %fits = icmp sle i64 %all, {most_in_tile}
  %straight = xor i1 %is.tb, true
  %one = and i1 %fits, %straight
  %huge = icmp sgt i64 %all, {most_in_all}
  %flat = icmp slt i64 %rows, {fewest_rows}
  %thin = icmp slt i64 %columns, {fewest_rows}
  %none.1 = or i1 %one, %huge
  %none.2 = or i1 %flat, %thin
  %none.3 = or i1 %none.1, %none.2
  %empty = icmp slt i64 %terms, 1
  %none = or i1 %none.3, %empty
  br i1 %none, label %whole, label %cut
whole:
  call void @blas(ptr %d, ptr %a, ptr %b, ptr %c, i64 %rows, i64 %columns, i64 %terms, i1 %adds,
                  i1 %is.tb, i64 %ldb)
  ret void
cut:
  %tm = call i64 @share(i64 %rows, i64 {rows})
  %narrow = icmp sle i64 %columns, {one_tile}
  %columns.most = select i1 %narrow, i64 {one_tile}, i64 {columns}
  %tn = call i64 @share(i64 %columns, i64 %columns.most)
  %area = mul i64 %tm, %tn
  %fit.all = udiv i64 {most_in_tile}, %area
  %fit = and i64 %fit.all, -16
  %tk.most = call i64 @llvm.smin.i64(i64 %fit, i64 {terms})
  %tk = call i64 @share(i64 %terms, i64 %tk.most)
  %again = icmp slt i64 %tm, %rows
  %b.address = ptrtoint ptr %b to i64
  %b.bytes = mul i64 %ldb, {size}
  %b.bits = or i64 %b.address, %b.bytes
  %b.low = and i64 %b.bits, 63
  %crooked = icmp ne i64 %b.low, 0
  %packs.1 = or i1 %again, %crooked
  %packs = or i1 %packs.1, %is.tb
  %a.row = select i1 %is.ta, i64 1, i64 %lda
  %a.term = select i1 %is.ta, i64 %lda, i64 1
  %b.column = select i1 %is.tb, i64 %ldb, i64 1
  %b.term = select i1 %is.tb, i64 1, i64 %ldb
  br label %across
across:
  %j = phi i64 [0, %cut], [%j.next, %across.end]
  %j.left = sub i64 %columns, %j
  %nn = call i64 @llvm.smin.i64(i64 %tn, i64 %j.left)
  %w.up = add i64 %nn, 15
  %w = and i64 %w.up, -16
  %b.j = mul i64 %j, %b.column
  br label %along
along:
  %p = phi i64 [0, %across], [%p.next, %along.end]
  %p.left = sub i64 %terms, %p
  %kk = call i64 @llvm.smin.i64(i64 %tk, i64 %p.left)
  %b.p = mul i64 %p, %b.term
  %b.jp = add i64 %b.j, %b.p
  %b.tile = getelementptr {llvm}, ptr %b, i64 %b.jp
  %a.p = mul i64 %p, %a.term
  %later = icmp ne i64 %p, 0
  %tile.adds = or i1 %later, %adds
  br i1 %packs, label %pack, label %down
pack:
  call void @pack(ptr %packed, i64 %w, ptr %b.tile, i64 %ldb, i64 %kk, i64 %nn, i1 %is.tb)
  br label %down
down:
  %tile = phi ptr [%b.tile, %along], [%packed, %pack]
  %tile.ld = phi i64 [%ldb, %along], [%w, %pack]
  br label %tiles
tiles:
  %i = phi i64 [0, %down], [%i.next, %tiles]
  %i.left = sub i64 %rows, %i
  %mm = call i64 @llvm.smin.i64(i64 %tm, i64 %i.left)
  %a.i = mul i64 %i, %a.row
  %a.ip = add i64 %a.i, %a.p
  %a.tile = getelementptr {llvm}, ptr %a, i64 %a.ip
  %c.i = mul i64 %i, %ldc
  %c.ij = add i64 %c.i, %j
  %c.tile = getelementptr {llvm}, ptr %c, i64 %c.ij
  call void @blas(ptr %d, ptr %a.tile, ptr %tile, ptr %c.tile, i64 %mm, i64 %nn, i64 %kk,
                  i1 %tile.adds, i1 false, i64 %tile.ld)
  %i.next = add i64 %i, %tm
  %i.more = icmp slt i64 %i.next, %rows
  br i1 %i.more, label %tiles, label %along.end
along.end:
  %p.next = add i64 %p, %tk
  %p.more = icmp slt i64 %p.next, %terms
  br i1 %p.more, label %along, label %across.end
across.end:
  %j.next = add i64 %j, %tn
  %j.more = icmp slt i64 %j.next, %columns
  br i1 %j.more, label %across, label %exit
exit:
  ret void
}}

; The length of equal parts of at most so many, a multiple of 16.
define internal i64 @share(i64 %length, i64 %most) {{
  %up = add i64 %length, %most
  %less = sub i64 %up, 1
  %parts = udiv i64 %less, %most
  %length.up = add i64 %length, %parts
  %length.less = sub i64 %length.up, 1
  %part = udiv i64 %length.less, %parts
  %part.up = add i64 %part, 15
  %share = and i64 %part.up, -16
  ret i64 %share
}}

; Copy a tile of so many terms and columns, to rows of w columns.
define internal void @pack(ptr %to, i64 %w, ptr %from, i64 %ld, i64 %terms, i64 %columns,
                           i1 %turned) {{
entry:
  br i1 %turned, label %blocks, label %line
line:
  %t = phi i64 [0, %entry], [%t.next, %line]
  %t.w = mul i64 %t, %w
  %t.to = getelementptr {llvm}, ptr %to, i64 %t.w
  %t.ld = mul i64 %t, %ld
  %t.from = getelementptr {llvm}, ptr %from, i64 %t.ld
  %bytes = mul i64 %columns, {size}
  call void @llvm.memcpy.p0.p0.i64(ptr %t.to, ptr %t.from, i64 %bytes, i1 false)
  %t.next = add i64 %t, 1
  %t.more = icmp slt i64 %t.next, %terms
  br i1 %t.more, label %line, label %exit
blocks:
  %columns.whole = and i64 %columns, -{lanes}
  %terms.whole = and i64 %terms, -{lanes}
  %area = mul i64 %columns.whole, %terms.whole
  %any = icmp ne i64 %area, 0
  br i1 %any, label %block.row, label %edges
block.row:
  %y = phi i64 [0, %blocks], [%y.next, %block.row.end]
  br label %block
block:
  %x = phi i64 [0, %block.row], [%x.next, %block]
  %x.w = mul i64 %x, %w
  %to.at = add i64 %x.w, %y
  %block.to = getelementptr {llvm}, ptr %to, i64 %to.at
  %y.ld = mul i64 %y, %ld
  %from.at = add i64 %y.ld, %x
  %block.from = getelementptr {llvm}, ptr %from, i64 %from.at
  call void @turn(ptr %block.to, i64 %w, ptr %block.from, i64 %ld)
  %x.next = add i64 %x, {lanes}
  %x.more = icmp slt i64 %x.next, %terms.whole
  br i1 %x.more, label %block, label %block.row.end
block.row.end:
  %y.next = add i64 %y, {lanes}
  %y.more = icmp slt i64 %y.next, %columns.whole
  br i1 %y.more, label %block.row, label %edges
edges:
  call void @turn_rest(ptr %to, i64 %w, ptr %from, i64 %ld, i64 0, i64 %columns.whole,
                       i64 %terms.whole, i64 %terms)
  call void @turn_rest(ptr %to, i64 %w, ptr %from, i64 %ld, i64 %columns.whole, i64 %columns,
                       i64 0, i64 %terms)
  br label %exit
exit:
  ret void
}}

define internal void @turn_rest(ptr %to, i64 %w, ptr %from, i64 %ld, i64 %y0, i64 %y1, i64 %x0,
                                i64 %x1) {{
entry:
  %some.y = icmp slt i64 %y0, %y1
  %some.x = icmp slt i64 %x0, %x1
  %some = and i1 %some.x, %some.y
  br i1 %some, label %row, label %exit
row:
  %y = phi i64 [%y0, %entry], [%y.next, %row.end]
  %y.ld = mul i64 %y, %ld
  br label %element
element:
  %x = phi i64 [%x0, %row], [%x.next, %element]
  %from.at = add i64 %y.ld, %x
  %from.p = getelementptr {llvm}, ptr %from, i64 %from.at
  %value = load {llvm}, ptr %from.p
  %x.w = mul i64 %x, %w
  %to.at = add i64 %x.w, %y
  %to.p = getelementptr {llvm}, ptr %to, i64 %to.at
  store {llvm} %value, ptr %to.p
  %x.next = add i64 %x, 1
  %x.more = icmp slt i64 %x.next, %x1
  br i1 %x.more, label %element, label %row.end
row.end:
  %y.next = add i64 %y, 1
  %y.more = icmp slt i64 %y.next, %y1
  br i1 %y.more, label %row, label %exit
exit:
  ret void
}}

define internal void @turn(ptr %to, i64 %w, ptr %from, i64 %ld) {{
  {turn}
  ret void
}}
"""

# Where products are not cut.
_WHOLE = """
define internal void @tiles(ptr %d, ptr %a, ptr %b, ptr %c, i64 %rows, i64 %columns, i64 %terms,
                            i1 %adds, ptr %packed) {{
  {fields}
  %is.tb = icmp ne i64 %transpose_b, 0
  call void @blas(ptr %d, ptr %a, ptr %b, ptr %c, i64 %rows, i64 %columns, i64 %terms, i1 %adds,
                  i1 %is.tb, i64 %ldb)
  ret void
}}
"""


def tiles(llvm: str, fields: str, has_small_kernels: bool) -> tuple[str, int]:
    """Return the function that computes a product of an element type, and the elements of memory
    that it needs for copies."""
    if llvm not in ("float", "double") or not has_small_kernels:
        return _WHOLE.format(fields=fields), 1
    size = 4 if llvm == "float" else 8
    text = _TILES.format(
        llvm=llvm,
        fields=fields,
        size=size,
        lanes=_LANES,
        turn="\n  ".join(_turn(llvm, size, _LANES)),
        most_in_tile=MOST_IN_TILE,
        most_in_all=MOST_IN_ALL,
        rows=ROWS,
        columns=COLUMNS,
        one_tile=ONE_TILE,
        terms=TERMS,
        fewest_rows=FEWEST_ROWS,
    )
    return text, TERMS * ONE_TILE


def _turn(llvm: str, size: int, lanes: int) -> Iterator[str]:
    """Yield the instructions that store a square of rows as columns.

    Quarters off the diagonal change places, then those of each quarter, and so on (J. Eklundh,
    "A fast computer method for matrix transposing", 1972).
    """
    vector = f"<{lanes} x {llvm}>"
    names = [f"%r{i}" for i in range(lanes)]
    for i, name in enumerate(names):
        yield f"{name}.i = mul i64 %ld, {i}"
        yield f"{name}.p = getelementptr {llvm}, ptr %from, i64 {name}.i"
        yield f"{name} = load {vector}, ptr {name}.p, align {size}"
    step = lanes // 2
    while step:
        for i in range(lanes):
            if i & step:
                continue
            x, y = names[i], names[i + step]
            first = [n if not n & step else lanes + n - step for n in range(lanes)]
            second = [n + step if not n & step else lanes + n for n in range(lanes)]
            for place, chosen in ((i, first), (i + step, second)):
                mask = ", ".join(f"i32 {n}" for n in chosen)
                names[place] = f"%s{step}.{place}"
                yield (
                    f"{names[place]} = shufflevector {vector} {x}, {vector} {y}, "
                    f"<{lanes} x i32> <{mask}>"
                )
        step //= 2
    for i, name in enumerate(names):
        yield f"%c{i}.i = mul i64 %w, {i}"
        yield f"%c{i}.p = getelementptr {llvm}, ptr %to, i64 %c{i}.i"
        yield f"store {vector} {name}, ptr %c{i}.p, align {size}"
