"""The kernel of a Fourier pass: several rows side by side, in vectors across them.

A task takes a block of rows (or of columns, where the axis is not the last one), and one element of
each makes a vector, so butterflies are plain vector arithmetic.  The stages go to and fro between
two stretches of scratch, in the order that needs no bit reversal (Stockham; see C. Van Loan,
"Computational Frameworks for the Fast Fourier Transform", 1992, section 1.7).  Two rows of real
numbers are the real and the imaginary part of one; their transforms are told apart by symmetry.

Little code is made quickly.  Stages of one radix after another are a loop, and what tells a
transform from its inverse, a scale and a sign, stands behind the roots in the table, so that their
kernels are alike and become one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from stax.graph import Node
from stax.lowering import loop_ir as ir
from stax.lowering.build import BuiltKernel
from stax.lowering.fourier import ROWS, WRITTEN, FourierPass, factors, table_rows
from stax.lowering.fourier_butterflies import Butterflies, Complex
from stax.lowering.paired import library_op
from stax.operators.fft import FftType

# Elements worth handing to another thread.
TASK = 8_000
# Rows that lie so many bytes apart meet in few sets of the cache: they are read tile by tile.
FAR = 4096
TILE = 64

Lanes = Callable[[int | ir.Expr], Sequence[ir.Stmt]]


def fourier_kernel(
    node: Node, sources: Sequence[Node], name: str, labels: Mapping[Node, str]
) -> BuiltKernel:
    """Return the kernel of a pass; `sources` are the operand and the table, in memory."""
    return _Pass(node, sources, name, labels).build()


class _Pass(Butterflies):
    """The kernel for an array seen as (outer, length, inner), transformed along the middle axis."""

    def __init__(
        self, node: Node, sources: Sequence[Node], name: str, labels: Mapping[Node, str]
    ) -> None:
        op = library_op(node.op)
        assert isinstance(op, FourierPass)
        super().__init__(node.type.dtype)
        given = node.inputs[0].type.shape
        # The length of the operand may be less than that of the stages.
        self.length, self.n = op.length, op.size or op.length
        self.name, self.kind, self.radices = name, FftType(op.kind), factors(self.n) or ()
        self.values = *sources, node
        self.packs = self.kind in (FftType.RFFT, FftType.IRFFT)
        if self.kind is not FftType.RFFT:
            given = given[:-1]  # without the axis of pairs
        if op.parts:
            given = (*given[:-1], *op.parts)
        inner = math.prod(given[op.axis + 1 :])
        # Whether the rows of a block are next to each other, in the operand and in the result.
        self.across, self.turned = inner > 1, inner > 1 or op.turned
        first = op.axis - 1 if op.turned else op.axis
        if self.across or op.turned:
            self.outer, self.rows = math.prod(given[:first]), inner if self.across else given[-2]
        else:
            self.outer, self.rows = 1, math.prod(given[: op.axis])
        length = given[op.axis]
        result = self.length // 2 + 1 if self.kind is FftType.RFFT else self.length
        self.source = self._buffer(
            labels[sources[0]], length, self.across, self.kind is not FftType.RFFT
        )
        self.table = ir.Buffer(labels[sources[1]], self.dtype, (table_rows(self.n), 2))
        self.turns: ir.Buffer | None = None
        self.chirps: ir.Buffer | None = None
        if op.size:
            self.chirps = ir.Buffer(labels[sources[2]], self.dtype, (3, self.n, 2))
        elif len(sources) > 2:
            self.turns = ir.Buffer(labels[sources[2]], self.dtype, (self.n, self.rows, 2))
        self.result = self._buffer(
            labels[node], result, self.turned, self.kind is not FftType.IRFFT
        )
        # Vectors, and the rows that they hold.
        self.lanes = -(-self.rows // 2) if self.packs else self.rows
        self.block = 1 << min(ROWS, self.lanes).bit_length() - 1
        # Two stretches, of real and of imaginary parts.  A little more than is used, so that the
        # same places of all lie in different sets.
        self.scratch = ir.Buffer("scratch0", self.dtype, (2, 2, self.n + 2, self.block))
        # Pairs of numbers that make a butterfly of many, and below them the first number.
        largest = max(self.radices)
        self.folded = ir.Buffer("folded0", self.dtype, (largest // 2 + 1, 4, self.block))
        self.has_many = largest not in WRITTEN
        # Whether rows are read before the first stage, and written after the last.
        is_apart = self.packs or self.chirps is not None
        self.reads_ahead = is_apart or self._is_far(length, self.across)
        self.writes_after = is_apart or self._is_far(result, self.turned)

    def _buffer(self, name: str, length: int, across: bool, in_pairs: bool) -> ir.Buffer:
        shape = (self.outer, length, self.rows) if across else (self.outer, self.rows, length)
        return ir.Buffer(name, self.dtype, (*shape, 2) if in_pairs else shape)

    def _is_far(self, length: int, across: bool) -> bool:
        """Say whether rows that are not next to each other lie far apart."""
        return not across and 2 * length * self.dtype.itemsize >= FAR

    def build(self) -> BuiltKernel:
        """Return the kernel."""
        blocks = -(-self.lanes // self.block)
        count = ir.index(self.outer * blocks)
        start: ir.Expr = ir.mul(ir.mod(_var("p0"), blocks), self.block)
        if self.lanes % self.block:
            # The last block ends with the rows; some are then computed twice, to the same result.
            start = ir.apply("minimum", start, ir.index(self.lanes - self.block))
        body: list[ir.Stmt] = [ir.Alloc(self.scratch)]
        if self.has_many:
            body.append(ir.Alloc(self.folded))
        for i, var in enumerate((self.scale, self.sign)):
            body.append(ir.Let(var, ir.Load(self.table, (ir.index(self.n), ir.index(i)))))
        body += [ir.Let(_var("base0"), start), ir.Let(_var("o0"), ir.floordiv(_var("p0"), blocks))]
        body += self._by_convolution() if self.chirps else self._transform()
        loop = ir.For(_var("p0"), count, "parallel", tuple(body))
        given = [buffer for buffer in (self.turns, self.chirps) if buffer]
        params = (self.source, self.table, *given, self.result)
        kernel = ir.Kernel(self.name, params, (), (loop,), (self.result.name,))
        work = max(1, self.n * self.block)
        over = ((self.source.name, self.result.name),) if self._is_in_place() else ()
        return BuiltKernel(kernel, self.values, count, max(1, TASK // work), over)

    def _is_in_place(self) -> bool:
        """Say whether a task has read its rows, which no other reads, before it writes them."""
        apart = len(self.radices) > 1 or self.reads_ahead or self.writes_after
        is_same = self.source.shape == self.result.shape and self.across == self.turned
        return is_same and apart and self.lanes % self.block == 0

    def _transform(self) -> list[ir.Stmt]:
        """Return the loops of all stages, and those that read and write where they do not."""
        found = self._read_ahead() if self.reads_ahead else []
        found += self._stages(ir.index(0))
        return [*found, *self._written_after(len(self.radices))] if self.writes_after else found

    def _by_convolution(self) -> list[ir.Stmt]:
        """Return the loops of a transform as a convolution, whose two are run by one loop.

        The second is the inverse of the first, but for conjugates of what it takes and makes.
        """
        turn = _var("turn0")
        stages = self._stages(ir.mul(turn, len(self.radices)))
        both = ir.For(turn, ir.index(2), "serial", tuple(stages))
        return [*self._read_ahead(), both, *self._written_after(0)]

    def _stages(self, start: ir.Expr) -> list[ir.Stmt]:
        """Return the loops of all stages, before which there were `start` others."""
        found: list[ir.Stmt] = []
        radices, first, last = self.radices, int(not self.reads_ahead), len(self.radices) - 1

        def kept_together(i: int) -> int:
            # The first stage may read from memory, and the last has other work to do.
            return radices[i] if first <= i < last else -i

        done = 1
        for _, group in itertools.groupby(range(len(radices)), kept_together):
            run = list(group)
            radix, before = radices[run[0]], ir.add(start, run[0])
            if len(run) > 1:
                found += self._repeated(radix, done, before, len(run))
            else:
                at = ir.mod(before, 2)
                reads = run[0] == 0 and not self.reads_ahead
                read = self._read if reads else self._from_scratch(at)
                writes = run[0] == last and not self.writes_after
                write = self._write if writes else self._to_scratch(ir.sub(ir.index(1), at))
                found.append(self._stage(radix, ir.index(done), read, write))
            done *= radix ** len(run)
        return found

    # --- one stage ---

    def _repeated(self, radix: int, start: int, before: ir.Expr, count: int) -> list[ir.Stmt]:
        """Return the loop over `count` stages of one radix, none of which is the last."""
        done, source, stage = _var(f"done{start}"), _var(f"from{start}"), _var(f"stage{start}")
        to = ir.sub(ir.index(1), source)
        body = (
            ir.Let(source, ir.mod(ir.add(stage, before), 2)),
            self._stage(radix, done, self._from_scratch(source), self._to_scratch(to)),
            ir.Set(done, ir.mul(done, radix)),
        )
        return [ir.Init(done, ir.index(start)), ir.For(stage, ir.index(count), "serial", body)]

    def _stage(self, radix: int, done: ir.Expr, read: Any, write: Any) -> ir.Stmt:
        """Return the loops of a stage, after stages whose radices multiply to `done`.

        Transforms of length n / done are cut into `radix` shorter ones each: over their elements p
        and over the `done` transforms q that lie side by side.
        """
        share = self.n // radix
        parts, known = ir.floordiv(ir.index(share), done), ir.static(done)
        is_last, is_first = known == share, known == 1
        self.count += 1
        p, q = _var(f"p{self.count}"), _var(f"q{self.count}")
        at_p: ir.Expr = ir.index(0) if is_last else ir.mul(p, done)
        at_q: ir.Expr = ir.index(0) if is_first else q
        lets: list[ir.Stmt] = []
        if not is_last:
            at_p = self._name(lets, at_p)
        start, to = ir.add(at_q, at_p), ir.add(at_q, ir.mul(at_p, radix))

        def read_element(body: list[ir.Stmt], k: int | ir.Expr) -> Complex:
            return self._named(body, read(ir.add(start, ir.mul(k, share))))

        def root(body: list[ir.Stmt], j: int | ir.Expr) -> Complex | None:
            place = ir.mul(j, at_p)
            return None if is_last else self._loaded(body, self.table, (place,))

        def write_result(
            body: list[ir.Stmt], j: int | ir.Expr, value: Complex, by: Complex | None
        ) -> None:
            place = ir.add(to, ir.mul(j, done))
            value = value if by is None else self._product(body, value, by)
            value = self._finished(body, place, value) if is_last else value
            body += write(place, value)

        rule = self._few if radix in WRITTEN else self._many
        body = rule(radix, lets, read_element, root, write_result)
        if not is_first:
            body = [ir.For(q, done, "serial", tuple(body))]
        return ir.For(p, parts, "serial", (*lets, *body))

    def _few(
        self, radix: int, lets: list[ir.Stmt], read: Any, root: Any, write: Any
    ) -> list[ir.Stmt]:
        """Return a butterfly that is written out; roots are found outside of its loops."""
        roots = [root(lets, j) if j else None for j in range(radix)]
        body: list[ir.Stmt] = []
        moved = self._butterfly(body, [read(body, k) for k in range(radix)])
        for j, (value, by) in enumerate(zip(moved, roots, strict=True)):
            write(body, j, value, by)
        return [self._vector(body)]

    def _many(
        self, radix: int, lets: list[ir.Stmt], read: Any, root: Any, write: Any
    ) -> list[ir.Stmt]:
        """Return a butterfly of many elements as loops over pairs k and radix - k (see `_odd`).

        The first folds them to sums and differences, the second makes four results at a time.
        """
        self.count += 1
        half, k, pairs = radix // 2, _var(f"k{self.count}"), _var(f"j{self.count}")
        body: list[ir.Stmt] = []
        x = read(body, 0)
        body += self._to_folded(half, [*x, *x])
        total = self._begun(body, x)
        folding: list[ir.Stmt] = []
        a, b = read(folding, ir.add(k, 1)), read(folding, ir.sub(ir.index(radix - 1), k))
        added, gap = self._sum(folding, a, b), self._difference(folding, a, b)
        folding += [*self._to_folded(k, [*added, *gap]), *self._added(total, added)]
        body.append(ir.For(k, ir.index(half), "serial", tuple(folding)))
        write(body, 0, total, None)
        spread: list[ir.Stmt] = []
        x0, zero = self._from_folded(spread, half)[0], self._number(0.0)
        even = [self._begun(spread, x0) for _ in range(2)]
        odd = [self._begun(spread, (zero, zero)) for _ in range(2)]
        inner: list[ir.Stmt] = []
        added, gap = self._from_folded(inner, k)
        first = table_rows(self.n, radix)
        for i in range(2):
            row = ir.add(ir.mul(ir.add(ir.mul(pairs, 2), i), half), k)
            cosine, sine = self._loaded(inner, self.table, (ir.add(row, first),))
            inner += self._added(even[i], added, cosine) + self._added(odd[i], gap, sine)
        spread.append(ir.For(k, ir.index(half), "serial", tuple(inner)))
        for i in range(2):
            j = ir.add(ir.mul(pairs, 2), i + 1)
            turned = self._named(spread, (ir.apply("neg", odd[i][1]), odd[i][0]))
            mirror = ir.sub(ir.index(radix), j)
            write(spread, j, self._sum(spread, even[i], turned), root(spread, j))
            write(spread, mirror, self._difference(spread, even[i], turned), root(spread, mirror))
        several = ir.For(pairs, ir.index((half + 1) // 2), "serial", (self._vector(spread),))
        return [self._vector(body), several]

    def _to_folded(self, k: int | ir.Expr, values: Sequence[ir.Expr]) -> list[ir.Stmt]:
        places = [(ir.index(k), ir.index(i), _var("x0")) for i in range(4)]
        return [ir.Store(self.folded, *x) for x in zip(places, values, strict=True)]

    def _from_folded(self, body: list[ir.Stmt], k: int | ir.Expr) -> tuple[Complex, Complex]:
        places = [(ir.index(k), ir.index(i), _var("x0")) for i in range(4)]
        a, b, c, d = (self._name(body, ir.Load(self.folded, place)) for place in places)
        return (a, b), (c, d)

    def _vector(self, body: Sequence[ir.Stmt]) -> ir.Stmt:
        return ir.For(_var("x0"), ir.index(self.block), "vector", tuple(body))

    # --- memory ---

    def _loaded(
        self, body: list[ir.Stmt], buffer: ir.Buffer, place: Sequence[int | ir.Expr]
    ) -> Complex:
        """Return a pair of a table."""
        at = tuple(map(ir.index, place))
        real, imag = (self._name(body, ir.Load(buffer, (*at, ir.index(i)))) for i in (0, 1))
        return real, imag

    def _at(self, row: ir.Expr, place: ir.Expr, across: bool) -> tuple[ir.Expr, ...]:
        """Return the index of an element of a row."""
        return (_var("o0"), place, row) if across else (_var("o0"), row, place)

    @property
    def _lane(self) -> ir.Expr:
        return ir.add(_var("base0"), _var("x0"))

    def _read(self, place: ir.Expr) -> Complex:
        at = self._at(self._lane, place, self.across)
        real, imag = (ir.Load(self.source, (*at, ir.index(i))) for i in (0, 1))
        return real, imag

    def _write(self, place: ir.Expr, value: Complex) -> list[ir.Stmt]:
        at = self._at(self._lane, place, self.turned)
        return [ir.Store(self.result, (*at, ir.index(i)), value[i]) for i in (0, 1)]

    def _in_scratch(self, which: int | ir.Expr, place: ir.Expr) -> list[tuple[ir.Expr, ...]]:
        """Return where the parts of an element are."""
        return [(ir.index(which), ir.index(i), place, _var("x0")) for i in (0, 1)]

    def _from_scratch(self, which: int | ir.Expr) -> Callable[[ir.Expr], Complex]:
        def read(place: ir.Expr) -> Complex:
            real, imag = (ir.Load(self.scratch, at) for at in self._in_scratch(which, place))
            return real, imag

        return read

    def _to_scratch(self, which: int | ir.Expr) -> Callable[[ir.Expr, Complex], list[ir.Stmt]]:
        def write(place: ir.Expr, value: Complex) -> list[ir.Stmt]:
            places = self._in_scratch(which, place)
            return [ir.Store(self.scratch, *x) for x in zip(places, value, strict=True)]

        return write

    # --- reading ahead of the stages, and writing after them ---

    def _along(
        self, first: int, count: int, body: Callable[[ir.Expr], list[ir.Stmt]]
    ) -> list[ir.Stmt]:
        """Return the loops over `count` elements from `first` on, of all rows of a block.

        Tile by tile, whole lines of one row are read or written before those of the next.
        """
        if not count:
            return []
        if not self._is_far(self.length, self.across):
            k = _var("k0")
            return [ir.For(k, ir.index(count), "serial", (self._vector(body(ir.add(k, first))),))]
        rest = count % TILE
        # Of mirrored rows, whose elements are read twice as it is, none is read a third time.
        is_apart = rest <= TILE // 4 or self.kind is FftType.IRFFT
        if rest and is_apart and count > TILE:
            whole = count - rest
            return [*self._along(first, whole, body), *self._along(first + whole, rest, body)]
        # The last tile ends with the elements: some are done twice, to the same result.
        length, tile, k, start = min(TILE, count), _var("c0"), _var("k0"), _var("start0")
        last = first + count - length
        begin = ir.add(ir.mul(tile, length), first)
        if rest and count > TILE:
            begin = ir.apply("minimum", begin, ir.index(last))
        inner = ir.For(k, ir.index(length), "vector", tuple(body(ir.add(start, k))))
        rows = ir.For(_var("x0"), ir.index(self.block), "serial", (inner,))
        return [ir.For(tile, ir.index(-(-count // length)), "serial", (ir.Let(start, begin), rows))]

    def _read_ahead(self) -> list[ir.Stmt]:
        """Return the loops that read the rows into scratch."""
        n, store = self.n, self._to_scratch(0)
        if self.chirps is not None:
            return self._chirped(self.chirps)
        if not self.packs:
            return self._along(0, n, lambda k: store(k, self._read(k)))
        if self.kind is FftType.RFFT:
            return self._along(0, n, lambda k: store(k, self._two_rows(k)))
        half = n // 2 + 1
        return [*self._along(0, half, self._mirrored), *self._along(half, n - half, self._mirror)]

    def _chirped(self, chirps: ir.Buffer) -> list[ir.Stmt]:
        """Return the loops that read the rows, multiply them with a chirp and fill up with 0."""
        store, zero = self._to_scratch(0), self._number(0.0)

        def turned(k: ir.Expr) -> list[ir.Stmt]:
            body: list[ir.Stmt] = []
            value, factor = self._named(body, self._read(k)), self._loaded(body, chirps, (0, k))
            value = self._product(body, value, factor)
            return body + store(k, value)

        k, rest = _var("k0"), self.n - self.length
        filled = (self._vector(store(ir.add(k, self.length), (zero, zero))),)
        return [*self._along(0, self.length, turned), ir.For(k, ir.index(rest), "serial", filled)]

    def _written_after(self, which: int) -> list[ir.Stmt]:
        """Return the loops that write what the stages have left in scratch."""
        n, read = self.length, self._from_scratch(which % 2)
        if not self.packs:
            return self._along(0, n, lambda k: self._write(k, read(k)))
        if self.kind is FftType.IRFFT:
            return self._along(0, n, lambda k: self._two_results(k, read(k)))

        def apart(k: ir.Expr) -> list[ir.Stmt]:
            return self._apart(k, read(k), read(ir.sub(ir.index(n), k)))

        zero = ir.index(0)
        only = tuple(self._apart(zero, read(zero), read(zero)))
        alone = ir.For(_var("x0"), ir.index(self.block), "serial", only)
        return [alone, *self._along(1, n // 2, apart)]

    def _finished(self, body: list[ir.Stmt], place: ir.Expr, value: Complex) -> Complex:
        """Return a result scaled, and multiplied by its factor."""
        if self.chirps is not None:
            factor = self._loaded(body, self.chirps, (ir.add(_var("turn0"), 1), place))
            value = self._product(body, value, factor)
            return self._named(body, (value[0], ir.apply("neg", value[1])))
        value = ir.apply("mul", value[0], self.scale), ir.apply("mul", value[1], self.scale)
        if self.turns is None:
            return value
        factor = self._loaded(body, self.turns, (place, self._lane))
        return self._product(body, self._named(body, value), factor)

    # --- two real rows in one ---

    def _pair(self) -> list[ir.Expr]:
        """Return the two rows of a lane; the second of the last may be the first once more."""
        first = ir.mul(self._lane, 2)
        second = ir.add(first, 1)
        if self.rows % 2:
            second = ir.apply("minimum", second, ir.index(self.rows - 1))
        return [first, second]

    def _two_rows(self, k: ir.Expr) -> Complex:
        """Return an element of two real rows as one complex number."""
        first, second = (
            ir.Load(self.source, self._at(row, k, self.across)) for row in self._pair()
        )
        return first, second

    def _two_results(self, k: ir.Expr, value: Complex) -> list[ir.Stmt]:
        """Return the statements that write the parts of a complex number to a real row each."""
        found: list[ir.Stmt] = []
        for row, part in zip(self._pair(), value, strict=True):
            found.append(ir.Store(self.result, self._at(row, k, self.across), part))
        return found

    def _apart(self, k: ir.Expr, value: Complex, mirrored: Complex) -> list[ir.Stmt]:
        """Return the statements that write element k of the transforms of two real rows.

        Of the transform z of both, that of the first is (z[k] + conj z[-k]) / 2, of the second
        (z[k] - conj z[-k]) / 2i.  A lone last row is both rows of its lane, and written twice.
        """
        body: list[ir.Stmt] = []
        (a, b), (c, d) = self._named(body, value), self._named(body, mirrored)
        half = self._number(0.5)
        found = [("add", a, c), ("sub", b, d), ("add", b, d), ("sub", c, a)]
        parts = [ir.apply("mul", ir.apply(name, x, y), half) for name, x, y in found]
        for row, values in zip(self._pair(), (parts[:2], parts[2:]), strict=True):
            at = self._at(row, k, self.across)
            for i, part in enumerate(values):
                body.append(ir.Store(self.result, (*at, ir.index(i)), part))
        return body

    def _two_halves(self, body: list[ir.Stmt], k: ir.Expr) -> tuple[Complex, Complex]:
        """Return element k of the two halved transforms of a lane."""
        found = []
        for row in self._pair():
            at = self._at(row, k, self.across)
            pair = [ir.Load(self.source, (*at, ir.index(i))) for i in (0, 1)]
            found.append(self._named(body, (pair[0], pair[1])))
        return found[0], found[1]

    def _mirrored(self, k: ir.Expr) -> list[ir.Stmt]:
        """Return the statements that read an element of the first half of a transform."""
        body: list[ir.Stmt] = []
        (a, b), (c, d) = self._two_halves(body, k)
        # Elements that are their own mirror image are real, whatever they are given as.
        alone = ir.apply("eq", k, ir.index(0))
        if self.n % 2 == 0:
            alone = ir.apply("or", alone, ir.apply("eq", k, ir.index(self.n // 2)))
        zero = self._number(0.0)
        b, d = ir.apply("select", alone, zero, b), ir.apply("select", alone, zero, d)
        value = self._named(body, (ir.apply("sub", a, d), ir.apply("add", b, c)))
        return [*body, *self._to_scratch(0)(k, value)]

    def _mirror(self, k: ir.Expr) -> list[ir.Stmt]:
        """Return the statements that make an element of the second half from the first."""
        body: list[ir.Stmt] = []
        (a, b), (c, d) = self._two_halves(body, ir.sub(ir.index(self.n), k))
        value = self._named(body, (ir.apply("add", a, d), ir.apply("sub", c, b)))
        return [*body, *self._to_scratch(0)(k, value)]


def _var(name: str) -> ir.Var:
    return ir.Var(name, ir.INDEX)
