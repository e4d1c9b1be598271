"""Einstein summation: a planner over `dot_general`.

Each operand is first reduced to distinct labels that something still needs: a repeated label is a
diagonal, one that occurs nowhere else is summed at once.  Then the pair of operands whose product
is cheapest is contracted, until one is left; it is transposed to the order asked for.

    einsum("bij,bjk->bik", x, y)     matrix products, b a batch axis
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from stax import types
from stax.errors import ArgumentError, ArgumentValueError, ShapeError
from stax.extent import Extent, same_shape
from stax.numpy.arguments import promoted, refuse_out
from stax.numpy.taking import diagonal
from stax.operators.broadcast import is_one
from stax.operators.contract import dot_general
from stax.operators.elementwise import convert
from stax.operators.reduce import reduce_sum
from stax.operators.reshape import reshape, transpose


class Term(NamedTuple):
    """An operand and the labels of its axes."""

    array: Any
    labels: tuple[str, ...]


def einsum(
    subscripts: Any,
    /,
    *operands: Any,
    out: Any = None,
    optimize: Any = "auto",
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Any:
    """Return the sum of products that `subscripts` describe, as NumPy's einsum does.

    With `optimize=False` operands are contracted in the order given.  `precision` and
    `preferred_element_type` are those of `lax.dot_general`.
    Raises ShapeError if axes with one label differ in length.
    """
    refuse_out("einsum", out)
    inputs, right, arrays = parse(subscripts, operands)
    given = promoted("einsum", list(arrays))
    named = [_checked(x, labels) for x, labels in zip(given, inputs, strict=True)]
    terms, output = _with_ellipsis(named, right)
    _check_lengths(terms)
    names = {label for t in terms for label in t.labels}
    if len(set(output)) != len(output) or not set(output) <= names:
        raise ArgumentValueError(
            f"einsum: output labels {''.join(output)} must be distinct and occur in an operand.",
            advice="A label that is summed over is left out of the output.",
        )
    terms = _without_ones(terms)
    order = _greedy if optimize is not False else _in_order
    while len(terms) > 1:
        i, j = order(terms, output)
        rest = [t for k, t in enumerate(terms) if k not in (i, j)]
        needed = set(output).union(*(t.labels for t in rest))
        terms = [_contract(terms[i], terms[j], needed, precision, preferred_element_type), *rest]
    result = _transposed(_alone(terms[0], set(output)), output)
    wanted = preferred_element_type
    return result if wanted is None else convert(result, types.check_dtype(wanted))


def einsum_path(subscripts: Any, /, *operands: Any, optimize: Any = "auto") -> tuple[Any, Any]:
    """Return the order in which NumPy would contract the operands, pair by pair, and a report.

    The order is a list of tuples of positions.  `einsum` itself takes the cheapest pair each time.
    """
    inputs, right, arrays = parse(subscripts, operands)
    text = f"{','.join(inputs)}->{right}".replace(".", "...")
    shapes = [x.shape for x in promoted("einsum_path", list(arrays))]
    planned = [np.broadcast_to(np.float32(0), shape) for shape in shapes]
    path, report = np.einsum_path(text, *planned, optimize=_NUMPY_PLANS.get(optimize, optimize))
    return path[1:], report


_NUMPY_PLANS: dict[Any, Any] = {"auto": "greedy", True: "greedy"}


def parse(subscripts: Any, operands: Sequence[Any]) -> tuple[list[str], str, Sequence[Any]]:
    """Return the labels of each operand, those of the output, and the operands.

    `...` stands in the labels as "." once; labels are letters.
    """
    if not isinstance(subscripts, str):
        subscripts, operands = _from_sublists([subscripts, *operands])
    text = subscripts.replace(" ", "")
    left, arrow, right = text.partition("->")
    inputs = [part.replace("...", ".") for part in left.split(",")]
    if len(inputs) != len(operands):
        raise ArgumentValueError(
            f"einsum: {subscripts!r} describes {len(inputs)} operands, got {len(operands)}.",
            advice="Separate the labels of operands by commas.",
        )
    for part in (*inputs, right.replace("...", ".")):
        if part.count(".") > 1 or not all(c.isalpha() or c == "." for c in part):
            raise ArgumentValueError(
                f"einsum: {part!r} in {subscripts!r} is not a row of labels.",
                advice="Labels are letters; '...' may stand once in each operand.",
            )
    if arrow:
        return inputs, right.replace("...", "."), operands
    together = "".join(inputs)
    once = sorted(c for c in set(together) if c != "." and together.count(c) == 1)
    return inputs, ("." if "." in together else "") + "".join(once), operands


def _from_sublists(args: list[Any]) -> tuple[str, list[Any]]:
    """Translate `einsum(x, [0, 1], y, [1, 2], [0, 2])` to labels."""
    operands = args[: len(args) // 2 * 2 : 2]
    rows = args[1 : len(args) // 2 * 2 : 2]
    text = ",".join(map(_letters, rows))
    return (f"{text}->{_letters(args[-1])}" if len(args) % 2 else text), operands


def _letters(row: Sequence[Any]) -> str:
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    try:
        return "".join("..." if x is Ellipsis else letters[x] for x in row)
    except (TypeError, IndexError):
        raise ArgumentError(
            f"einsum: {row!r} is not a list of axis numbers.",
            advice="Write einsum(x, [0, 1], y, [1, 2], [0, 2]).",
        ) from None


def _checked(x: Any, labels: str) -> Term:
    named = len(labels) - labels.count(".")
    if named > x.ndim or ("." not in labels and named != x.ndim):
        raise ArgumentValueError(
            f"einsum: labels {labels!r} do not fit the axes of {x.type}.",
            advice="Give one letter for each axis, or '...' for those that are left.",
        )
    return Term(x, tuple(labels))


def _with_ellipsis(terms: Sequence[Term], output: str) -> tuple[list[Term], tuple[str, ...]]:
    """Replace each "." by labels of its own, aligned at the end; they broadcast."""
    counts = [t.array.ndim - len(t.labels) + 1 if "." in t.labels else 0 for t in terms]
    widest = max(counts)
    names = tuple(f".{i}" for i in range(widest))

    def expanded(labels: Sequence[str], count: int) -> tuple[str, ...]:
        return tuple(
            name
            for label in labels
            for name in (names[widest - count :] if label == "." else (label,))
        )

    found = [
        Term(t.array, expanded(t.labels, count)) for t, count in zip(terms, counts, strict=True)
    ]
    return found, expanded(output, widest)


def _check_lengths(terms: Sequence[Term]) -> None:
    lengths: dict[str, Any] = {}
    for t in terms:
        for label, n in zip(t.labels, t.array.shape, strict=True):
            known = lengths.get(label, 1)
            if is_one(known):
                lengths[label] = n
            elif not is_one(n) and not same_shape((n,), (known,)):
                raise ShapeError(
                    f"einsum: label {label!r} names axes of lengths {known} and {n}.",
                    advice="A label stands for one length; axes of length 1 broadcast.",
                )


def _without_ones(terms: Sequence[Term]) -> list[Term]:
    """Drop axes of length 1 whose label is a longer axis elsewhere: they broadcast."""
    long = {
        label
        for t in terms
        for label, n in zip(t.labels, t.array.shape, strict=True)
        if not is_one(n)
    }
    result = []
    for t in terms:
        pairs = list(zip(t.labels, t.array.shape, strict=True))
        kept = [(label, n) for label, n in pairs if not (is_one(n) and label in long)]
        result.append(Term(reshape(t.array, [n for _, n in kept]), tuple(c for c, _ in kept)))
    return result


def _alone(term: Term, needed: set[str]) -> Term:
    """Take diagonals of repeated labels and sum over those that nothing else needs."""
    x, labels = term
    while len(set(labels)) != len(labels):
        repeated = next(c for c in labels if labels.count(c) > 1)
        first = labels.index(repeated)
        second = labels.index(repeated, first + 1)
        x = diagonal(x, 0, first, second)
        labels = (*(c for i, c in enumerate(labels) if i not in (first, second)), repeated)
    gone = [i for i, c in enumerate(labels) if c not in needed]
    if gone:
        x = reduce_sum(x, gone)
    return Term(x, tuple(c for c in labels if c in needed))


def _contract(a: Term, b: Term, needed: set[str], precision: Any, preferred: Any) -> Term:
    """Multiply two terms and sum over the labels that only they have."""
    a, b = _alone(a, needed | set(b.labels)), _alone(b, needed | set(a.labels))
    shared = [c for c in a.labels if c in b.labels]
    batch = [c for c in shared if c in needed]
    summed = [c for c in shared if c not in needed]
    numbers = (
        tuple(tuple(t.labels.index(c) for c in summed) for t in (a, b)),
        tuple(tuple(t.labels.index(c) for c in batch) for t in (a, b)),
    )
    free = [c for t in (a, b) for c in t.labels if c not in shared]
    return Term(dot_general(a.array, b.array, numbers, precision, preferred), (*batch, *free))


def _transposed(term: Term, output: Sequence[str]) -> Any:
    return transpose(term.array, [term.labels.index(c) for c in output])


def _in_order(terms: Sequence[Term], output: Sequence[str]) -> tuple[int, int]:
    return 0, 1


def _greedy(terms: Sequence[Term], output: Sequence[str]) -> tuple[int, int]:
    """Return the pair whose product grows memory least, and among those costs least."""

    def price(pair: tuple[int, int]) -> tuple[float, float]:
        a, b = terms[pair[0]], terms[pair[1]]
        rest = [t for k, t in enumerate(terms) if k not in pair]
        needed = set(output).union(*(t.labels for t in rest))
        lengths = {
            c: _number(n) for t in (a, b) for c, n in zip(t.labels, t.array.shape, strict=True)
        }
        size = math.prod(n for c, n in lengths.items() if c in needed)
        before = sum(math.prod(map(_number, t.array.shape)) for t in (a, b))
        return size - before, math.prod(lengths.values())

    return min(itertools.combinations(range(len(terms)), 2), key=price)


def _number(n: Any) -> int:
    """Return a length to plan with; an open one counts as long."""
    return 1024 if isinstance(n, Extent) else n
