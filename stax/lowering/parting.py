"""Sorting signed integers in place, in LLVM text: quicksort whose steps are vectors.

A row is parted around a pivot, a vector at a time: what is less is moved to the front of the
vector and stored at the left, the rest at the right.  A block from either end is set aside first,
so that there is always room for what is dealt out, and nothing but a few hundred bytes of stack is
needed.  Up to `FEW` vectors are sorted by a bitonic network.  Equal numbers cannot be told apart,
so this is for keys alone, and for records that all differ because each holds its place.

The pivot is the median of a vector of samples.  Rows on which that fails too often are sorted by a
heap, so no row takes longer than n log n.

Moving what is less to the front of a vector is an instruction of AVX-512.  Elsewhere rows are
parted element by element, without a branch; everything else is the same.
"""

from __future__ import annotations

from collections.abc import Iterator

# Bits of a vector, vectors that a network sorts, and those that are dealt out in one go.
VECTOR_BITS = 512
FEW = 8
BLOCK = 4


def lanes_of(bits: int) -> int:
    """Return the numbers in a vector."""
    return VECTOR_BITS // bits


def largest(bits: int) -> int:
    """Return the largest number, above all keys."""
    return (1 << (bits - 1)) - 1


def numbered(lanes: int, bits: int = 32) -> str:
    """Return the vector 0, 1, 2, ..."""
    return _literal(bits, range(lanes))


def splat(name: str, kind: str, lanes: int) -> list[str]:
    """Return instructions that make the vector %name.v of the scalar %name."""
    zeros = f"<{lanes} x i32> zeroinitializer"
    vector = f"<{lanes} x {kind}>"
    return [
        f"%{name}.one = insertelement {vector} poison, {kind} %{name}, i64 0",
        f"%{name}.v = shufflevector {vector} %{name}.one, {vector} poison, {zeros}",
    ]


def sorting_functions(bits: int, attributes: str) -> Iterator[tuple[str, str]]:
    """Yield names and texts of the functions: @quick{bits}(ptr, n) sorts, @part{bits} and
    @pivot{bits} are its steps."""
    lanes = lanes_of(bits)
    given = {
        "bits": bits, "lanes": lanes, "vector": f"<{lanes} x i{bits}>", "attributes": attributes,
        "largest": largest(bits), "block": BLOCK * lanes, "few": FEW * lanes, "vectors": FEW,
        "room": (3 * BLOCK + 1) * lanes, "numbers": numbered(lanes), "bytes": bits // 8,
        "last": lanes - 1, "middle": lanes // 2, "wide": f"<{lanes} x i32>",
    }  # fmt: skip
    yield f"lanes{bits}", _network("lanes", bits, _sorting_stages(lanes), attributes)
    yield f"merged{bits}", _network("merged", bits, _merging_stages(lanes), attributes)
    backwards = _literal(32, reversed(range(lanes)))
    yield f"few{bits}", _FEW.format(**given, backwards=backwards)
    samples = "\n  ".join(_samples(bits))
    yield f"pivot{bits}", _PIVOT.format(**given, samples=samples)
    texts = {
        "held": "\n  ".join(_right_block_held(bits)),
        "dealt": "\n  ".join(_block_dealt(bits)),
        "first": "\n  ".join(_dealt("f", bits, "tail", "tail.right", is_partial=True)),
        "each": "\n  ".join(_dealt("e", bits, "each.left", "each.right")),
        "final": "\n  ".join(_parted("l", bits)),
        "pivots": "\n  ".join(splat("pivot", f"i{bits}", lanes)),
        "some": "\n  ".join(splat("some", "i32", lanes)),
        "less": "\n  ".join(splat("l.count", "i32", lanes)),
    }
    is_wide = f'"prefer-vector-width"="{VECTOR_BITS}"' in attributes
    part = _PART if is_wide else _PART_ONE_BY_ONE
    yield f"part{bits}", part.format(**given, **texts)
    yield f"heap{bits}", _HEAP.format(**given)
    yield f"quick{bits}", _QUICK.format(**given)


def _literal(bits: int, numbers: object) -> str:
    return f"<{', '.join(f'i{bits} {n}' for n in numbers)}>"  # type: ignore[attr-defined]


def _sorting_stages(lanes: int) -> list[int]:
    """Return, stage by stage, what is xored with a lane to get the one that it is compared with."""
    stages, size = [], 2
    while size <= lanes:
        stages += [size - 1, *_merging_stages(size // 2)]
        size *= 2
    return stages


def _merging_stages(lanes: int) -> list[int]:
    stages, distance = [], lanes // 2
    while distance:
        stages.append(distance)
        distance //= 2
    return stages


def _network(name: str, bits: int, stages: list[int], attributes: str) -> str:
    """Return the function that compares lanes of a vector in stages."""
    lanes = lanes_of(bits)
    vector, lines, x = f"<{lanes} x i{bits}>", [], "%x"
    for i, other in enumerate(stages):
        order = _literal(32, (j ^ other for j in range(lanes)))
        chosen = _literal(32, (j + lanes * ((j ^ other) < j) for j in range(lanes)))
        wide = f"<{lanes} x i32>"
        lines += [
            f"%o{i} = shufflevector {vector} {x}, {vector} poison, {wide} {order}",
            f"%s{i} = call {vector} @llvm.smin.v{lanes}i{bits}({vector} {x}, {vector} %o{i})",
            f"%g{i} = call {vector} @llvm.smax.v{lanes}i{bits}({vector} {x}, {vector} %o{i})",
            f"%x{i} = shufflevector {vector} %s{i}, {vector} %g{i}, {wide} {chosen}",
        ]
        x = f"%x{i}"
    body = "\n  ".join(lines)
    head = f"define internal {vector} @{name}{bits}({vector} %x) {attributes}"
    return f"{head} {{\n  {body}\n  ret {vector} {x}\n}}\n"


def _samples(bits: int) -> list[str]:
    """Return instructions that gather a vector %v{lanes} of samples, evenly spread over a row."""
    lanes = lanes_of(bits)
    lines, vector = [], f"<{lanes} x i{bits}>"
    for j in range(lanes):
        before = "poison" if not j else f"%v{j}"
        lines += [
            f"%far{j} = mul i64 %step, {j}",
            f"%place{j} = add i64 %far{j}, %half",
            f"%at{j} = getelementptr i{bits}, ptr %a, i64 %place{j}",
            f"%sample{j} = load i{bits}, ptr %at{j}",
            f"%v{j + 1} = insertelement {vector} {before}, i{bits} %sample{j}, i64 {j}",
        ]
    return [*lines, f"%sorted = call {vector} @lanes{bits}({vector} %v{lanes})"]


def _right_block_held(bits: int) -> list[str]:
    """Return instructions that set the last block of a row aside, behind the first."""
    lanes = lanes_of(bits)
    lines = []
    for u in range(BLOCK):
        lines += [
            f"%from{u} = getelementptr i{bits}, ptr %last.at, i64 {u * lanes}",
            f"%kept{u} = load <{lanes} x i{bits}>, ptr %from{u}, align {bits // 8}",
            f"%into{u} = getelementptr i{bits}, ptr %held.last, i64 {u * lanes}",
            f"store <{lanes} x i{bits}> %kept{u}, ptr %into{u}, align {bits // 8}",
        ]
    return lines


def _block_dealt(bits: int) -> list[str]:
    """Return instructions that deal out the block of vectors at %block.at."""
    lanes, lines = lanes_of(bits), []
    for u in range(BLOCK):
        lines += [
            f"%b{u}.at = getelementptr i{bits}, ptr %block.at, i64 {u * lanes}",
            f"%b{u} = load <{lanes} x i{bits}>, ptr %b{u}.at, align {bits // 8}",
        ]
    left, right = "left", "right"
    for u in range(BLOCK):
        lines += _dealt(f"b{u}", bits, left, right)
        left, right = f"b{u}.left", f"b{u}.right"
    return lines


def _parted(x: str, bits: int, is_partial: bool = False) -> list[str]:
    """Return instructions that part the vector %x: what is less first, %x.low; the rest last,
    %x.high; and the number of those that are less, %x.less."""
    lanes = lanes_of(bits)
    vector, mask = f"<{lanes} x i{bits}>", f"<{lanes} x i1>"
    ones = _literal(1, ["true"] * lanes)
    order = _literal(32, reversed(range(lanes)))
    compress = f"call {vector} @llvm.experimental.vector.compress.v{lanes}i{bits}({vector} %{x}, "
    live = f"{mask} %live" if is_partial else f"{mask} {ones}"
    return [
        f"%{x}.before = icmp slt {vector} %{x}, %pivot.v",
        f"%{x}.is.low = and {live}, %{x}.before",
        f"%{x}.after = xor {mask} %{x}.before, {ones}",
        f"%{x}.is.high = and {live}, %{x}.after",
        f"%{x}.low = {compress}{mask} %{x}.is.low, {vector} poison)",
        f"%{x}.high.first = {compress}{mask} %{x}.is.high, {vector} poison)",
        f"%{x}.high = shufflevector {vector} %{x}.high.first, {vector} poison, "
        f"<{lanes} x i32> {order}",
        *_counted(x, "low", lanes),
        f"%{x}.less = zext i{lanes} %{x}.low.count to i64",
    ]


def _counted(x: str, side: str, lanes: int) -> list[str]:
    return [
        f"%{x}.{side}.bits = bitcast <{lanes} x i1> %{x}.is.{side} to i{lanes}",
        f"%{x}.{side}.count = call i{lanes} @llvm.ctpop.i{lanes}(i{lanes} %{x}.{side}.bits)",
    ]


def _dealt(x: str, bits: int, left: str, right: str, is_partial: bool = False) -> list[str]:
    """Return instructions that store what is less at %left and the rest before %right.

    A whole vector is stored on both sides; there is room for two.
    """
    lanes = lanes_of(bits)
    if is_partial:
        high = [
            *_counted(x, "high", lanes),
            f"%{x}.more = zext i{lanes} %{x}.high.count to i64",
        ]
    else:
        high = [f"%{x}.more = sub i64 {lanes}, %{x}.less"]
    return [
        *_parted(x, bits, is_partial),
        *high,
        f"%{x}.low.at = getelementptr i{bits}, ptr %a, i64 %{left}",
        f"store <{lanes} x i{bits}> %{x}.low, ptr %{x}.low.at, align {bits // 8}",
        f"%{x}.high.from = sub i64 %{right}, {lanes}",
        f"%{x}.high.at = getelementptr i{bits}, ptr %a, i64 %{x}.high.from",
        f"store <{lanes} x i{bits}> %{x}.high, ptr %{x}.high.at, align {bits // 8}",
        f"%{x}.left = add i64 %{left}, %{x}.less",
        f"%{x}.right = sub i64 %{right}, %{x}.more",
    ]


# What is beyond the row counts as largest, and so stays beyond it.  Runs of 1, 2, ... vectors are
# merged two by two: the second one backwards, so that both together rise and fall.
_FEW = """
define internal void @few{bits}(ptr %a, i64 %n) {attributes} {{
entry:
  %held = alloca [{vectors} x {vector}], align 64
  %n.up = add i64 %n, {last}
  %needed = sdiv i64 %n.up, {lanes}
  %needed.last = sub i64 %needed, 1
  %zeros = call i64 @llvm.ctlz.i64(i64 %needed.last, i1 false)
  %log = sub i64 64, %zeros
  %v = shl i64 1, %log
  %pairs = lshr i64 %v, 1
  br label %take
take:
  %i = phi i64 [0, %entry], [%i.next, %take]
  %first = mul i64 %i, {lanes}
  %left = sub i64 %n, %first
  %left.some = call i64 @llvm.smax.i64(i64 %left, i64 0)
  %some = trunc i64 %left.some to i32
  %some.one = insertelement {wide} poison, i32 %some, i64 0
  %some.v = shufflevector {wide} %some.one, {wide} poison, {wide} zeroinitializer
  %live = icmp ult {wide} {numbers}, %some.v
  %at = getelementptr i{bits}, ptr %a, i64 %first
  %most.one = insertelement {vector} poison, i{bits} {largest}, i64 0
  %most = shufflevector {vector} %most.one, {vector} poison, {wide} zeroinitializer
  %x = call {vector} @llvm.masked.load.v{lanes}i{bits}.p0(
    ptr %at, i32 {bytes}, <{lanes} x i1> %live, {vector} %most)
  %x.sorted = call {vector} @lanes{bits}({vector} %x)
  %held.at = getelementptr {vector}, ptr %held, i64 %i
  store {vector} %x.sorted, ptr %held.at
  %i.next = add i64 %i, 1
  %more = icmp slt i64 %i.next, %v
  br i1 %more, label %take, label %widths
widths:
  %lw = phi i64 [0, %take], [%lw.next, %cleaned]
  %is.all = icmp sge i64 %lw, %log
  br i1 %is.all, label %give, label %mirror.begin
mirror.begin:
  %w = shl i64 1, %lw
  %w.last = sub i64 %w, 1
  %lw.next = add i64 %lw, 1
  %w.both = shl i64 2, %lw
  %both.last = sub i64 %w.both, 1
  br label %mirror
mirror:
  %p = phi i64 [0, %mirror.begin], [%p.next, %mirror]
  %group = lshr i64 %p, %lw
  %base = shl i64 %group, %lw.next
  %within = and i64 %p, %w.last
  %low.i = add i64 %base, %within
  %high.off = sub i64 %both.last, %within
  %high.i = add i64 %base, %high.off
  %low.at = getelementptr {vector}, ptr %held, i64 %low.i
  %high.at = getelementptr {vector}, ptr %held, i64 %high.i
  %low = load {vector}, ptr %low.at
  %high = load {vector}, ptr %high.at
  %high.back = shufflevector {vector} %high, {vector} poison, {wide} {backwards}
  %lows = call {vector} @llvm.smin.v{lanes}i{bits}({vector} %low, {vector} %high.back)
  %highs = call {vector} @llvm.smax.v{lanes}i{bits}({vector} %low, {vector} %high.back)
  %highs.back = shufflevector {vector} %highs, {vector} poison, {wide} {backwards}
  store {vector} %lows, ptr %low.at
  store {vector} %highs.back, ptr %high.at
  %p.next = add i64 %p, 1
  %p.more = icmp slt i64 %p.next, %pairs
  br i1 %p.more, label %mirror, label %distances
distances:
  %ld.up = phi i64 [%lw, %mirror], [%ld, %distance.done]
  %is.close = icmp eq i64 %ld.up, 0
  br i1 %is.close, label %within.lanes, label %distance.begin
distance.begin:
  %ld = sub i64 %ld.up, 1
  %d = shl i64 1, %ld
  %d.last = sub i64 %d, 1
  br label %distance
distance:
  %q = phi i64 [0, %distance.begin], [%q.next, %distance]
  %q.group = lshr i64 %q, %ld
  %q.base = shl i64 %q.group, %ld.up
  %q.within = and i64 %q, %d.last
  %q.low = add i64 %q.base, %q.within
  %q.high = add i64 %q.low, %d
  %q.low.at = getelementptr {vector}, ptr %held, i64 %q.low
  %q.high.at = getelementptr {vector}, ptr %held, i64 %q.high
  %y = load {vector}, ptr %q.low.at
  %z = load {vector}, ptr %q.high.at
  %y.low = call {vector} @llvm.smin.v{lanes}i{bits}({vector} %y, {vector} %z)
  %z.high = call {vector} @llvm.smax.v{lanes}i{bits}({vector} %y, {vector} %z)
  store {vector} %y.low, ptr %q.low.at
  store {vector} %z.high, ptr %q.high.at
  %q.next = add i64 %q, 1
  %q.more = icmp slt i64 %q.next, %pairs
  br i1 %q.more, label %distance, label %distance.done
distance.done:
  br label %distances
within.lanes:
  br label %clean
clean:
  %c = phi i64 [0, %within.lanes], [%c.next, %clean]
  %c.at = getelementptr {vector}, ptr %held, i64 %c
  %c.x = load {vector}, ptr %c.at
  %c.merged = call {vector} @merged{bits}({vector} %c.x)
  store {vector} %c.merged, ptr %c.at
  %c.next = add i64 %c, 1
  %c.more = icmp slt i64 %c.next, %v
  br i1 %c.more, label %clean, label %cleaned
cleaned:
  br label %widths
give:
  %g = phi i64 [0, %widths], [%g.next, %give]
  %g.first = mul i64 %g, {lanes}
  %g.left = sub i64 %n, %g.first
  %g.some = trunc i64 %g.left to i32
  %g.one = insertelement {wide} poison, i32 %g.some, i64 0
  %g.v = shufflevector {wide} %g.one, {wide} poison, {wide} zeroinitializer
  %g.live = icmp ult {wide} {numbers}, %g.v
  %g.from = getelementptr {vector}, ptr %held, i64 %g
  %g.x = load {vector}, ptr %g.from
  %g.at = getelementptr i{bits}, ptr %a, i64 %g.first
  call void @llvm.masked.store.v{lanes}i{bits}.p0(
    {vector} %g.x, ptr %g.at, i32 {bytes}, <{lanes} x i1> %g.live)
  %g.next = add i64 %g, 1
  %g.more = icmp slt i64 %g.next, %needed
  br i1 %g.more, label %give, label %exit
exit:
  ret void
}}
"""

_PIVOT = """
define internal i{bits} @pivot{bits}(ptr %a, i64 %n) {attributes} {{
  %step = udiv i64 %n, {lanes}
  %half = lshr i64 %step, 1
  {samples}
  %pivot = extractelement {vector} %sorted, i64 {middle}
  ret i{bits} %pivot
}}
"""

# Of what is set aside, first so much is dealt out that whole vectors are left, and of the last one
# both parts are stored at once.
_PART = """
define internal i64 @part{bits}(ptr %a, i64 %n, i{bits} %pivot) {attributes} {{
entry:
  %held = alloca [{room} x i{bits}], align 64
  {pivots}
  %rest = urem i64 %n, {block}
  %first.n = add i64 %rest, {block}
  br label %hold
hold:
  %h = phi i64 [0, %entry], [%h.next, %hold]
  %h.from = getelementptr i{bits}, ptr %a, i64 %h
  %h.into = getelementptr i{bits}, ptr %held, i64 %h
  %h.x = load {vector}, ptr %h.from, align {bytes}
  store {vector} %h.x, ptr %h.into, align {bytes}
  %h.next = add i64 %h, {lanes}
  %h.more = icmp slt i64 %h.next, %first.n
  br i1 %h.more, label %hold, label %held.first
held.first:
  %last.from = sub i64 %n, {block}
  %last.at = getelementptr i{bits}, ptr %a, i64 %last.from
  %held.last = getelementptr i{bits}, ptr %held, i64 %first.n
  {held}
  br label %look
look:
  %from = phi i64 [%first.n, %held.first], [%from.next, %deal]
  %to = phi i64 [%last.from, %held.first], [%to.next, %deal]
  %left = phi i64 [0, %held.first], [%left.next, %deal]
  %right = phi i64 [%n, %held.first], [%right.next, %deal]
  %any = icmp slt i64 %from, %to
  br i1 %any, label %deal, label %tail.begin
deal:
  %left.room = sub i64 %from, %left
  %right.room = sub i64 %right, %to
  %is.left = icmp sle i64 %left.room, %right.room
  %to.less = sub i64 %to, {block}
  %from.more = add i64 %from, {block}
  %block.from = select i1 %is.left, i64 %from, i64 %to.less
  %from.next = select i1 %is.left, i64 %from.more, i64 %from
  %to.next = select i1 %is.left, i64 %to, i64 %to.less
  %block.at = getelementptr i{bits}, ptr %a, i64 %block.from
  {dealt}
  %left.next = add i64 %b3.left, 0
  %right.next = add i64 %b3.right, 0
  br label %look
tail.begin:
  %tail = add i64 %left, 0
  %tail.right = add i64 %right, 0
  %total = add i64 %first.n, {block}
  %some.wide = urem i64 %n, {lanes}
  %some = trunc i64 %some.wide to i32
  {some}
  %live = icmp ult {wide} {numbers}, %some.v
  %f = load {vector}, ptr %held, align {bytes}
  {first}
  %final.from = sub i64 %total, {lanes}
  br label %each
each:
  %j = phi i64 [%some.wide, %tail.begin], [%j.next, %each.dealt]
  %each.left = phi i64 [%f.left, %tail.begin], [%e.left, %each.dealt]
  %each.right = phi i64 [%f.right, %tail.begin], [%e.right, %each.dealt]
  %is.more = icmp slt i64 %j, %final.from
  br i1 %is.more, label %each.dealt, label %final
each.dealt:
  %e.at = getelementptr i{bits}, ptr %held, i64 %j
  %e = load {vector}, ptr %e.at, align {bytes}
  {each}
  %j.next = add i64 %j, {lanes}
  br label %each
final:
  %l.at = getelementptr i{bits}, ptr %held, i64 %final.from
  %l = load {vector}, ptr %l.at, align {bytes}
  {final}
  %l.count = trunc i64 %l.less to i32
  {less}
  %l.is.less = icmp ult {wide} {numbers}, %l.count.v
  %l.both = select <{lanes} x i1> %l.is.less, {vector} %l.low, {vector} %l.high
  %l.into = getelementptr i{bits}, ptr %a, i64 %each.left
  store {vector} %l.both, ptr %l.into, align {bytes}
  %l.left = add i64 %each.left, %l.less
  ret i64 %l.left
}}
"""

# What is less changes places with the first element that is not.
_PART_ONE_BY_ONE = """
define internal i64 @part{bits}(ptr %a, i64 %n, i{bits} %pivot) {attributes} {{
entry:
  br label %one
one:
  %i = phi i64 [0, %entry], [%i.next, %one]
  %left = phi i64 [0, %entry], [%left.next, %one]
  %i.at = getelementptr i{bits}, ptr %a, i64 %i
  %left.at = getelementptr i{bits}, ptr %a, i64 %left
  %x = load i{bits}, ptr %i.at
  %y = load i{bits}, ptr %left.at
  store i{bits} %y, ptr %i.at
  store i{bits} %x, ptr %left.at
  %is.less = icmp slt i{bits} %x, %pivot
  %less = zext i1 %is.less to i64
  %left.next = add i64 %left, %less
  %i.next = add i64 %i, 1
  %more = icmp slt i64 %i.next, %n
  br i1 %more, label %one, label %exit
exit:
  ret i64 %left.next
}}
"""

# Rarely needed, so compiled in haste.
_HEAP = """
define internal void @sift{bits}(ptr %a, i64 %root, i64 %n) noinline optnone {attributes} {{
entry:
  %root.at = getelementptr i{bits}, ptr %a, i64 %root
  %x = load i{bits}, ptr %root.at
  br label %down
down:
  %i = phi i64 [%root, %entry], [%child, %move]
  %i.at = getelementptr i{bits}, ptr %a, i64 %i
  %twice = shl i64 %i, 1
  %one = add i64 %twice, 1
  %two = add i64 %twice, 2
  %has.one = icmp slt i64 %one, %n
  br i1 %has.one, label %choose, label %put
choose:
  %has.two = icmp slt i64 %two, %n
  %two.or = select i1 %has.two, i64 %two, i64 %one
  %one.at = getelementptr i{bits}, ptr %a, i64 %one
  %two.at = getelementptr i{bits}, ptr %a, i64 %two.or
  %y = load i{bits}, ptr %one.at
  %z = load i{bits}, ptr %two.at
  %is.second = icmp slt i{bits} %y, %z
  %child = select i1 %is.second, i64 %two.or, i64 %one
  %w = select i1 %is.second, i{bits} %z, i{bits} %y
  %is.less = icmp slt i{bits} %x, %w
  br i1 %is.less, label %move, label %put
move:
  store i{bits} %w, ptr %i.at
  br label %down
put:
  store i{bits} %x, ptr %i.at
  ret void
}}

define internal void @heap{bits}(ptr %a, i64 %n) noinline optnone {attributes} {{
entry:
  %half = lshr i64 %n, 1
  br label %build
build:
  %i = phi i64 [%half, %entry], [%i.less, %build]
  %i.less = sub i64 %i, 1
  call void @sift{bits}(ptr %a, i64 %i.less, i64 %n)
  %i.more = icmp sgt i64 %i.less, 0
  br i1 %i.more, label %build, label %take
take:
  %m = phi i64 [%n, %build], [%m.less, %take]
  %m.less = sub i64 %m, 1
  %last.at = getelementptr i{bits}, ptr %a, i64 %m.less
  %first = load i{bits}, ptr %a
  %last = load i{bits}, ptr %last.at
  store i{bits} %last, ptr %a
  store i{bits} %first, ptr %last.at
  call void @sift{bits}(ptr %a, i64 0, i64 %m.less)
  %m.more = icmp sgt i64 %m.less, 1
  br i1 %m.more, label %take, label %exit
exit:
  ret void
}}
"""

# Where nothing is less than the pivot, what equals it is put in front and done with.  The shorter
# part is sorted by a call of the function, the longer one by going round.
_QUICK = """
define internal void @quick_within{bits}(ptr %a.all, i64 %n.all, i64 %depth.all) {attributes} {{
entry:
  br label %round
round:
  %a = phi ptr [%a.all, %entry], [%a.right, %equal], [%a.next, %lesser]
  %n = phi i64 [%n.all, %entry], [%n.right, %equal], [%n.next, %lesser]
  %depth = phi i64 [%depth.all, %entry], [%depth.next, %equal], [%depth.next, %lesser]
  %is.few = icmp sle i64 %n, {few}
  br i1 %is.few, label %few, label %many
few:
  %any = icmp sgt i64 %n, 1
  br i1 %any, label %some, label %exit
some:
  call void @few{bits}(ptr %a, i64 %n)
  ret void
many:
  %depth.next = sub i64 %depth, 1
  %is.deep = icmp eq i64 %depth, 0
  br i1 %is.deep, label %deep, label %part
deep:
  call void @heap{bits}(ptr %a, i64 %n)
  ret void
part:
  %pivot = call i{bits} @pivot{bits}(ptr %a, i64 %n)
  %k = call i64 @part{bits}(ptr %a, i64 %n, i{bits} %pivot)
  %is.least = icmp eq i64 %k, 0
  br i1 %is.least, label %least, label %two
least:
  %is.largest = icmp eq i{bits} %pivot, {largest}
  br i1 %is.largest, label %exit, label %equal
equal:
  %above = add i{bits} %pivot, 1
  %same = call i64 @part{bits}(ptr %a, i64 %n, i{bits} %above)
  %a.right = getelementptr i{bits}, ptr %a, i64 %same
  %n.right = sub i64 %n, %same
  br label %round
two:
  %b = getelementptr i{bits}, ptr %a, i64 %k
  %m = sub i64 %n, %k
  %is.left = icmp slt i64 %k, %m
  %a.short = select i1 %is.left, ptr %a, ptr %b
  %n.short = select i1 %is.left, i64 %k, i64 %m
  %a.next = select i1 %is.left, ptr %b, ptr %a
  %n.next = select i1 %is.left, i64 %m, i64 %k
  br label %lesser
lesser:
  call void @quick_within{bits}(ptr %a.short, i64 %n.short, i64 %depth.next)
  br label %round
exit:
  ret void
}}

define internal void @quick{bits}(ptr %a, i64 %n) {attributes} {{
  %zeros = call i64 @llvm.ctlz.i64(i64 %n, i1 false)
  %log = sub i64 64, %zeros
  %depth = shl i64 %log, 1
  call void @quick_within{bits}(ptr %a, i64 %n, i64 %depth)
  ret void
}}
"""
