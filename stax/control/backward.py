"""The step of a backward loop: what pulls cotangents back through a scan, from its last step on.

It carries the cotangents of what the scan carries and sums of those of its constants, and beside
each the mask of its live lanes where there is one: a lane that some step has masked stays dead in
the steps before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from stax.control.accumulate import accumulating
from stax.control.held import given, marked, sections, spread
from stax.graph import Graph
from stax.interpreters.interpret import inline
from stax.interpreters.masks import Masked, are_masked, either, flat
from stax.interpreters.transpose import Transposed, masks_matter, transpose_masked
from stax.operators.elementwise import add
from stax.trace import Trace, full, zeros
from stax.types import ArrayType, bool_

if TYPE_CHECKING:
    from stax.control.scan import Scan


class BackwardStep:
    """The backward step of a scan, linear in what is flagged, all of its carry included.

    `cts` are the cotangents of the results of the scan, and `care` says for which inputs of the
    body masks matter.
    """

    def __init__(
        self,
        op: Scan,
        flags: Sequence[bool],
        cts: Sequence[Masked | None],
        care: Sequence[bool],
    ) -> None:
        self.body, self.flags, self.care = op.body, list(flags), marked(care, flags)
        self.carried, self.ys = sections(cts, op.carry)
        self.linear = op.parts(flags)
        self.counts = sum(self.linear.consts), op.carry
        self.types = [x.type for x in op.parts(op.body.inputs).consts]
        self.masked_ys = are_masked(self.ys)
        matter = masks_matter(op.body, flags, care)
        # Beside masks, a result that is not used has no live lane; else its zero is ordinary.
        unused = any(c is not None and c.mask is not None for c in cts)
        starts = [
            m and (unused if c is None else c.mask is not None)
            for c, m in zip(self.carried, matter, strict=False)
        ]
        self.masked = self._lasting(starts)
        self.back = self._transposed(self.masked)
        self.graph = self._step()

    def _transposed(self, masked: Sequence[bool]) -> Transposed:
        """Return the transpose of the body, where so many of the carried cotangents have masks."""
        count, _ = self.counts
        wanted = [*[False] * count, *masked, *[False] * sum(self.linear.xs)]
        return transpose_masked(
            self.body,
            self.flags,
            [True] * sum(self.flags),
            [*masked, *self.masked_ys],
            self.care,
            wanted,
        )

    def _lasting(self, masked: list[bool]) -> list[bool]:
        """Return which carried cotangents have masks: at the start or after some step, and read."""
        while True:
            back = self._transposed(masked)
            _, after, _ = sections(back.has_mask, *self.counts)
            grown = [a or b for a, b in zip(masked, after, strict=True)]
            if grown == masked:
                break
            masked = grown
        uses = back.graph.uses()
        masks = iter(back.graph.inputs[-(sum(masked) + self.masked_ys.count(True)) :])
        return [m and uses[next(masks)] > 0 for m in masked]

    def _step(self) -> Graph:
        known = self.linear.consts.count(False), self.linear.xs.count(False)
        given_ys = given(self.ys)
        inner = sections(self.back.graph.inputs, *known, self.counts[1], len(given_ys))
        with Trace(self.body.name, "transpose") as trace:
            consts = [trace.input(x.type, x.label) for x in inner[0]]
            carried = [trace.input(x.type, "ct") for x in inner[2]]
            masks = [trace.input(_bool(x.type), "mask") for x in marked(inner[2], self.masked)]
            sums = [trace.input(t, "sum") for t in self._summed()]
            live = [trace.input(_bool(t), "mask") for t in self._summed_masks()]
            xs = [trace.input(x.type, x.label) for x in inner[1]]
            ys = [trace.input(x.type, "ct") for x in inner[3]]
            masks += [
                trace.input(_bool(x.type), "mask")
                for x, y in zip(inner[3], given_ys, strict=True)
                if y.mask is not None
            ]
            found = self.back.spread(inline(self.back.graph, [*consts, *xs, *carried, *ys, *masks]))
            grown, new, elements = sections(found, *self.counts)
            before = iter(live)
            totals = [
                Masked(add(a, b.value), None if b.mask is None else either(next(before), b.mask))
                for a, b in zip(sums, grown, strict=True)
            ]
            return accumulating(trace.finish([*self._flat(new, totals), *flat(elements)]))

    def _flat(self, carried: Sequence[Masked], sums: Sequence[Masked]) -> list[Any]:
        """Return what a step carries on, in order."""
        masks = marked([c.mask for c in carried], self.masked)
        return [*(c.value for c in carried), *masks, *flat(sums)]

    def _summed(self) -> list[ArrayType]:
        return marked(self.types, self.linear.consts)

    def _summed_masks(self) -> list[ArrayType]:
        return marked(self._summed(), self.back.has_mask[: self.counts[0]])

    def carry(self) -> list[Any]:
        """Return what the backward loop starts from."""
        types = self.body.output_types[: len(self.carried)]
        values, masks = [], []
        for c, t in zip(self.carried, types, strict=True):
            values.append(zeros(t) if c is None else c.value)
            mask = None if c is None else c.mask
            masks.append(full(t.shape, c is not None, bool_) if mask is None else mask)
        sums = [zeros(t) for t in self._summed()]
        live = [full(t.shape, False, bool_) for t in self._summed_masks()]
        return [*values, *marked(masks, self.masked), *sums, *live]

    def elements(self) -> list[Any]:
        """Return the arrays of cotangents, and of masks, that a step is given an element of."""
        return flat(self.ys)

    def spread(self, found: Sequence[Any]) -> list[Masked]:
        """Return what the backward loop returned as cotangents of the operands that are flagged."""
        count, carry = self.counts
        of_sums, _, of_xs = sections(self.back.has_mask, count, carry)
        values, masks, sums, live, xs, rest = sections(
            found, carry, sum(self.masked), count, sum(of_sums), len(of_xs)
        )
        return [
            *_masked(sums, live, of_sums),
            *_masked(values, masks, self.masked),
            *_masked(xs, rest, of_xs),
        ]


def _masked(values: Sequence[Any], masks: Sequence[Any], flags: Sequence[bool]) -> list[Masked]:
    return list(map(Masked, values, spread(masks, flags)))


def _bool(type_: ArrayType) -> ArrayType:
    return type_.with_dtype(bool_)
