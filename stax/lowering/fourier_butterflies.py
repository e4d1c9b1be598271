"""Butterflies: the transforms of a few numbers, written out as statements on vectors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from stax.lowering import loop_ir as ir

Complex = tuple[ir.Expr, ir.Expr]


class Butterflies:
    """Writes arithmetic on complex numbers of real type `dtype`, each part under a new name."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype
        # What the results are multiplied with, and the sign in the exponent of the transform.
        self.scale, self.sign = (ir.Var(name, dtype) for name in ("scale0", "sign0"))
        self.count = 0

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

        def turned(real: ir.Expr, imag: ir.Expr) -> Complex:
            # By i times the sign; products with it are exact.
            fused = (("fma", imag, self.sign, b[0]), ("fma", real, self.sign, b[1]))
            parts = [ir.apply(name, *args) for name, *args in fused]
            return self._named(body, (parts[0], parts[1]))

        return [
            self._sum(body, a, c),
            turned(d[0], ir.apply("neg", d[1])),
            self._difference(body, a, c),
            turned(ir.apply("neg", d[0]), d[1]),
        ]

    def _odd(self, body: list[ir.Stmt], x: Sequence[Complex], radix: int) -> list[Complex]:
        """Return the transform of an odd number of elements, by pairs k and radix - k.

        Out of the sum of such a pair the cosines make what is even in the result, out of the
        difference the sines what is odd.
        """
        half = radix // 2
        sines = [
            self._name(body, ir.apply("mul", self.sign, self._number(math.sin(_angle(k, radix)))))
            for k in range(radix)
        ]
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
                cosine = self._number(math.cos(_angle(j * k, radix)))
                even = self._scaled(body, even, sums[k - 1], cosine)
                odd = self._scaled(body, odd, gaps[k - 1], sines[j * k % radix])
            assert odd is not None
            turned = self._named(body, (ir.apply("neg", odd[1]), odd[0]))
            first.append(self._sum(body, even, turned))
            second.append(self._difference(body, even, turned))
        return [*first, *reversed(second)]

    def _begun(self, body: list[ir.Stmt], x: Complex) -> Complex:
        """Return a number that changes, and begins as `x`."""
        self.count += 1
        real, imag = (ir.Var(f"c{self.count}{part}", self.dtype) for part in "ri")
        body += [ir.Init(real, x[0]), ir.Init(imag, x[1])]
        return real, imag

    def _added(self, total: Complex, x: Complex, scale: ir.Expr | None = None) -> list[ir.Stmt]:
        """Return the statements that add `x`, or a multiple of it, to a number that changes."""
        found: list[ir.Stmt] = []
        for var, part in zip(total, x, strict=True):
            assert isinstance(var, ir.Var)
            rule = ("add", var, part) if scale is None else ("fma", part, scale, var)
            found.append(ir.Set(var, ir.apply(rule[0], *rule[1:])))
        return found

    def _scaled(
        self, body: list[ir.Stmt], total: Complex | None, x: Complex, scale: ir.Expr
    ) -> Complex:
        """Return `total` and `x` times a real number."""
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
        var = ir.Var(f"v{self.count}", value.dtype)
        body.append(ir.Let(var, value))
        return var


def _angle(k: int, n: int) -> float:
    return 2 * math.pi * (k % n) / n
