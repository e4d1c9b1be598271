"""The kernel of a Fourier pass: several rows side by side, in vectors across them.

A task takes a block of rows (or of columns, where the axis is not the last one), and one element of
each makes a vector, so butterflies are plain vector arithmetic.  The stages go to and fro between
two stretches of scratch, in the order that needs no bit reversal (Stockham; see C. Van Loan,
"Computational Frameworks for the Fast Fourier Transform", 1992, section 1.7).  Two rows of real
numbers are the real and the imaginary part of one; their transforms are told apart by symmetry.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from stax.graph import Node
from stax.lowering import loop_ir as ir
from stax.lowering.build import BuiltKernel
from stax.lowering.fourier import ROWS, FourierPass, factors
from stax.lowering.paired import library_op
from stax.operators.fft import FftType

# Elements worth handing to another thread.
TASK = 8_000
# Rows that lie so many bytes apart meet in few sets of the cache: they are read tile by tile.
FAR = 4096
TILE = 64

Complex = tuple[ir.Expr, ir.Expr]
Lanes = Callable[[int | ir.Expr], Sequence[ir.Stmt]]


def fourier_kernel(
    node: Node, sources: Sequence[Node], name: str, labels: Mapping[Node, str]
) -> BuiltKernel:
    """Return the kernel of a pass; `sources` are the operand and the table, in memory."""
    return _Pass(node, sources, name, labels).build()


class _Pass:
    """The kernel for an array seen as (outer, length, inner), transformed along the middle axis."""

    def __init__(
        self, node: Node, sources: Sequence[Node], name: str, labels: Mapping[Node, str]
    ) -> None:
        op = library_op(node.op)
        assert isinstance(op, FourierPass)
        given = node.inputs[0].type.shape
        self.name, self.n, self.kind = name, op.length, FftType(op.kind)
        self.dtype = node.type.dtype
        self.values = *sources, node
        self.packs = self.kind in (FftType.RFFT, FftType.IRFFT)
        if self.kind is not FftType.RFFT:
            given = given[:-1]  # without the axis of pairs
        inner = math.prod(given[op.axis + 1 :])
        # Whether the rows of a block are next to each other, in the operand and in the result.
        self.across, self.turned = inner > 1, inner > 1 or op.turned
        first = op.axis - 1 if op.turned else op.axis
        if self.across or op.turned:
            self.outer, self.rows = math.prod(given[:first]), inner if self.across else given[-2]
        else:
            self.outer, self.rows = 1, math.prod(given[: op.axis])
        length = given[op.axis]
        result = self.n // 2 + 1 if self.kind is FftType.RFFT else self.n
        self.source = self._buffer(
            labels[sources[0]], length, self.across, self.kind is not FftType.RFFT
        )
        self.table = ir.Buffer(labels[sources[1]], self.dtype, (self.n, 2))
        self.turns = (
            ir.Buffer(labels[sources[2]], self.dtype, (self.n, self.rows, 2))
            if len(sources) > 2
            else None
        )
        self.result = self._buffer(
            labels[node], result, self.turned, self.kind is not FftType.IRFFT
        )
        # Vectors, and the rows that they hold.
        self.lanes = -(-self.rows // 2) if self.packs else self.rows
        self.block = min(ROWS, self.lanes)
        # A little more than is used, so that the same places of all lie in different sets.
        shape = (self.n + 2, self.block)
        self.scratch = [
            (ir.Buffer(f"re{i}", self.dtype, shape), ir.Buffer(f"im{i}", self.dtype, shape))
            for i in (0, 1)
        ]
        # Whether rows are read before the first stage, and written after the last.
        self.reads_ahead = self.packs or self._is_far(length, self.across)
        self.writes_after = self.packs or self._is_far(result, self.turned)
        is_inverse = self.kind in (FftType.IFFT, FftType.IRFFT)
        self.sign = 1 if is_inverse else -1
        self.scale = 1 / self.n if is_inverse else None
        self.count = 0

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
        body: list[ir.Stmt] = [ir.Alloc(buffer) for pair in self.scratch for buffer in pair]
        body += [ir.Let(_var("base0"), start), ir.Let(_var("o0"), ir.floordiv(_var("p0"), blocks))]
        body += self._stages()
        loop = ir.For(_var("p0"), count, "parallel", tuple(body))
        given = [self.turns] if self.turns else []
        params = (self.source, self.table, *given, self.result)
        kernel = ir.Kernel(self.name, params, (), (loop,), (self.result.name,))
        work = max(1, self.n * self.block)
        over = ((self.source.name, self.result.name),) if self._is_in_place() else ()
        return BuiltKernel(kernel, self.values, count, max(1, TASK // work), over)

    def _is_in_place(self) -> bool:
        """Say whether a task has read its rows, which no other reads, before it writes them."""
        stages = len(factors(self.n) or ())
        apart = stages > 1 or self.reads_ahead or self.writes_after
        is_same = self.source.shape == self.result.shape and self.across == self.turned
        return is_same and apart and self.lanes % self.block == 0

    def _stages(self) -> list[ir.Stmt]:
        """Return the loops of all stages, and those that read and write where they do not."""
        radices = factors(self.n)
        assert radices is not None
        found = self._read_ahead() if self.reads_ahead else []
        at, done = 0, 1
        read: Any = None if self.reads_ahead else self._read
        for i, radix in enumerate(radices):
            is_last = i == len(radices) - 1
            write = self._to_scratch(1 - at) if self.writes_after or not is_last else self._write
            found.append(self._stage(radix, done, read or self._from_scratch(at), write))
            read, at, done = None, 1 - at, done * radix
        return [*found, *self._written_after(at)] if self.writes_after else found

    # --- one stage ---

    def _stage(self, radix: int, done: int, read: Any, write: Any) -> ir.Stmt:
        """Return the loops of a stage, after stages whose radices multiply to `done`.

        Transforms of length n / done are cut into `radix` shorter ones each: over their elements p
        and over the `done` transforms q that lie side by side.
        """
        parts = self.n // (done * radix)
        p, q = _var(f"p{done}_{radix}"), _var(f"q{done}_{radix}")
        at_p: ir.Expr = p if parts > 1 else ir.index(0)
        at_q: ir.Expr = q if done > 1 else ir.index(0)
        roots: list[Complex | None] = [None]
        lets: list[ir.Stmt] = []
        for j in range(1, radix):
            if parts == 1:
                roots.append(None)
                continue
            number = ir.mul(at_p, j * done)
            pair = [self._name(lets, ir.Load(self.table, (number, ir.index(i)))) for i in (0, 1)]
            roots.append((pair[0], pair[1]))
        across: list[ir.Stmt] = []
        elements = []
        for k in range(radix):
            place = ir.add(at_q, ir.mul(ir.add(at_p, k * parts), done))
            elements.append(self._named(across, read(place)))
        moved = self._butterfly(across, elements)
        for j, (value, root) in enumerate(zip(moved, roots, strict=True)):
            turned = value if root is None else self._product(across, value, root)
            place = ir.add(at_q, ir.mul(ir.add(ir.mul(at_p, radix), j), done))
            if parts == 1:
                turned = self._finished(across, place, turned)
            across += write(place, turned)
        body: tuple[ir.Stmt, ...] = (self._vector(across),)
        if done > 1:
            body = (ir.For(q, ir.index(done), "serial", body),)
        body = (*lets, *body)
        return ir.For(p, ir.index(parts), "serial", body)

    def _vector(self, body: Sequence[ir.Stmt]) -> ir.Stmt:
        return ir.For(_var("x0"), ir.index(self.block), "vector", tuple(body))

    def _butterfly(self, body: list[ir.Stmt], x: Sequence[Complex]) -> list[Complex]:
        """Return the transform of as many numbers as there are in `x`, written out."""
        match len(x):
            case 2:
                return [self._sum(body, x[0], x[1]), self._difference(body, x[0], x[1])]
            case 4:
                return self._four(body, x)
            case radix:
                return self._odd(body, x, radix)

    def _four(self, body: list[ir.Stmt], x: Sequence[Complex]) -> list[Complex]:
        a, b = self._sum(body, x[0], x[2]), self._difference(body, x[0], x[2])
        c, d = self._sum(body, x[1], x[3]), self._difference(body, x[1], x[3])
        turned = self._by_i(d)
        return [
            self._sum(body, a, c),
            self._sum(body, b, turned),
            self._difference(body, a, c),
            self._difference(body, b, turned),
        ]

    def _by_i(self, x: Complex) -> Complex:
        """Return `x` multiplied by i, or by -i in the forward transform."""
        if self.sign > 0:
            return ir.apply("neg", x[1]), x[0]
        return x[1], ir.apply("neg", x[0])

    def _odd(self, body: list[ir.Stmt], x: Sequence[Complex], radix: int) -> list[Complex]:
        """Return the transform of an odd number of elements, by pairs k and radix - k.

        Out of the sum of such a pair the cosines make what is even in the result, out of the
        difference the sines what is odd.
        """
        half = radix // 2
        sums = [self._sum(body, x[k], x[radix - k]) for k in range(1, half + 1)]
        gaps = [self._difference(body, x[k], x[radix - k]) for k in range(1, half + 1)]
        total = x[0]
        for s in sums:
            total = self._sum(body, total, s)
        first, second = [total], []
        for j in range(1, half + 1):
            even = x[0]
            odd: Complex | None = None
            for k in range(1, half + 1):
                angle = 2 * math.pi * (j * k % radix) / radix
                even = self._scaled(body, even, sums[k - 1], math.cos(angle))
                odd = self._scaled(body, odd, gaps[k - 1], math.sin(angle))
            assert odd is not None
            turned = self._by_i(odd)
            first.append(self._sum(body, even, turned))
            second.append(self._difference(body, even, turned))
        return [*first, *reversed(second)]

    def _scaled(
        self, body: list[ir.Stmt], total: Complex | None, x: Complex, factor: float
    ) -> Complex:
        """Return `total` and `x` times a real number."""
        scale = self._number(factor)
        if total is None:
            parts = [ir.apply("mul", a, scale) for a in x]
        else:
            parts = [ir.apply("fma", a, scale, b) for a, b in zip(x, total, strict=True)]
        return self._named(body, (parts[0], parts[1]))

    # --- complex arithmetic ---

    def _sum(self, body: list[ir.Stmt], x: Complex, y: Complex) -> Complex:
        return self._named(body, (ir.apply("add", x[0], y[0]), ir.apply("add", x[1], y[1])))

    def _difference(self, body: list[ir.Stmt], x: Complex, y: Complex) -> Complex:
        return self._named(body, (ir.apply("sub", x[0], y[0]), ir.apply("sub", x[1], y[1])))

    def _product(self, body: list[ir.Stmt], x: Complex, y: Complex) -> Complex:
        cross = [ir.apply("mul", x[1], y[1]), ir.apply("mul", x[1], y[0])]
        parts = (
            ir.apply("fma", x[0], y[0], ir.apply("neg", cross[0])),
            ir.apply("fma", x[0], y[1], cross[1]),
        )
        return self._named(body, parts)

    def _number(self, value: float) -> ir.Const:
        return ir.Const(np.asarray(value, self.dtype)[()], self.dtype)

    def _named(self, body: list[ir.Stmt], x: Complex) -> Complex:
        return self._name(body, x[0]), self._name(body, x[1])

    def _name(self, body: list[ir.Stmt], value: ir.Expr) -> ir.Expr:
        if isinstance(value, ir.Var | ir.Const):
            return value
        self.count += 1
        var = ir.Var(f"v{self.count}", self.dtype)
        body.append(ir.Let(var, value))
        return var

    # --- memory ---

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

    def _from_scratch(self, which: int) -> Callable[[ir.Expr], Complex]:
        real, imag = self.scratch[which]
        return lambda place: (
            ir.Load(real, (place, _var("x0"))),
            ir.Load(imag, (place, _var("x0"))),
        )

    def _to_scratch(self, which: int) -> Callable[[ir.Expr, Complex], list[ir.Stmt]]:
        real, imag = self.scratch[which]
        return lambda place, value: [
            ir.Store(real, (place, _var("x0")), value[0]),
            ir.Store(imag, (place, _var("x0")), value[1]),
        ]

    # --- reading ahead of the stages, and writing after them ---

    def _along(
        self, first: int, count: int, body: Callable[[ir.Expr], list[ir.Stmt]]
    ) -> list[ir.Stmt]:
        """Return the loops over `count` elements from `first` on, of all rows of a block.

        Tile by tile, whole lines of one row are read or written before those of the next.
        """
        if not count:
            return []
        if not self._is_far(self.n, self.across):
            k = _var("k0")
            return [ir.For(k, ir.index(count), "serial", (self._vector(body(ir.add(k, first))),))]
        found: list[ir.Stmt] = []
        tiles, rest = divmod(count, TILE)
        tile, k = _var("c0"), _var("k0")

        def rows(start: ir.Expr, length: int) -> ir.Stmt:
            inner = ir.For(k, ir.index(length), "vector", tuple(body(ir.add(start, k))))
            return ir.For(_var("x0"), ir.index(self.block), "serial", (inner,))

        if tiles:
            start = ir.add(ir.mul(tile, TILE), first)
            found.append(ir.For(tile, ir.index(tiles), "serial", (rows(start, TILE),)))
        if rest:
            found.append(rows(ir.index(first + tiles * TILE), rest))
        return found

    def _read_ahead(self) -> list[ir.Stmt]:
        """Return the loops that read the rows into scratch."""
        n, store = self.n, self._to_scratch(0)
        if not self.packs:
            return self._along(0, n, lambda k: store(k, self._read(k)))
        if self.kind is FftType.RFFT:
            return self._along(0, n, lambda k: store(k, self._two_rows(k)))
        half = n // 2 + 1
        return [*self._along(0, half, self._mirrored), *self._along(half, n - half, self._mirror)]

    def _written_after(self, which: int) -> list[ir.Stmt]:
        """Return the loops that write what the stages have left in scratch."""
        n, read = self.n, self._from_scratch(which)
        if not self.packs:
            return self._along(0, n, lambda k: self._write(k, read(k)))
        if self.kind is FftType.IRFFT:
            return self._along(0, n, lambda k: self._two_results(k, read(k)))

        def apart(k: ir.Expr) -> list[ir.Stmt]:
            return self._apart(k, read(k), read(ir.sub(ir.index(n), k)))

        zero = ir.index(0)
        alone = self._vector(self._apart(zero, read(zero), read(zero)))
        return [alone, *self._along(1, n // 2, apart)]

    def _finished(self, body: list[ir.Stmt], place: ir.Expr, value: Complex) -> Complex:
        """Return a result scaled, and multiplied by its factor."""
        if self.scale is not None:
            scale = self._number(self.scale)
            value = ir.apply("mul", value[0], scale), ir.apply("mul", value[1], scale)
        if self.turns is None:
            return value
        factor = [ir.Load(self.turns, (place, self._lane, ir.index(i))) for i in (0, 1)]
        return self._product(
            body, self._named(body, value), self._named(body, (factor[0], factor[1]))
        )

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
