"""Rotations as quaternions (x, y, z, w) of length 1 in the last axis; other axes are a batch.

Formulas: F. L. Markley, "Unit quaternion from rotation matrix", 2008; E. Bernardes and S. Viollet,
"Quaternion to Euler angles conversion: a direct, general and computationally efficient method",
2022.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import stax.numpy as snp

# Below this angle a series is more exact than a quotient.
SMALL = 1e-3
# An angle this near to 0 or to a half turn leaves the first and the last Euler angle undecided.
_DEGENERATE = 1e-7


def parts(quat: Any) -> tuple[Any, Any, Any, Any]:
    """Return x, y, z and w."""
    return quat[..., 0], quat[..., 1], quat[..., 2], quat[..., 3]


def normalized(quat: Any) -> Any:
    """Return quaternions of length 1."""
    return quat / snp.linalg.norm(quat, axis=-1, keepdims=True)


def composed(p: Any, q: Any) -> Any:
    """Return the product: the rotation by q, followed by that by p."""
    vectors, w = (p[..., :3], q[..., :3]), (p[..., 3:], q[..., 3:])
    vector = w[0] * vectors[1] + w[1] * vectors[0] + snp.cross(*vectors)
    scalar = w[0] * w[1] - snp.sum(vectors[0] * vectors[1], -1, keepdims=True)
    return snp.concatenate([vector, scalar], -1)


def canonical(quat: Any) -> Any:
    """Return the one of q and -q in which the first of w, x, y and z that is not 0 is positive."""
    x, y, z, w = parts(quat)
    lead = snp.where(w != 0, w, snp.where(x != 0, x, snp.where(y != 0, y, z)))
    return snp.where((lead < 0)[..., None], -quat, quat)


# --- matrices ---


def matrix_of(quat: Any) -> Any:
    """Return rotation matrices."""
    x, y, z, w = parts(quat)
    rows = (
        (x * x - y * y - z * z + w * w, 2 * (x * y - z * w), 2 * (x * z + y * w)),
        (2 * (x * y + z * w), w * w - x * x + y * y - z * z, 2 * (y * z - x * w)),
        (2 * (x * z - y * w), 2 * (y * z + x * w), w * w - x * x - y * y + z * z),
    )
    return snp.stack([snp.stack(row, -1) for row in rows], -2)


def of_matrix(matrix: Any) -> Any:
    """Return the quaternions of rotation matrices.

    Four times the product of a quaternion with itself can be read off its matrix; each row is a
    multiple of the quaternion, and the longest is the most exact.
    """
    m = [[matrix[..., i, j] for j in range(3)] for i in range(3)]
    trace = m[0][0] + m[1][1] + m[2][2]
    sums = [[m[i][j] + m[j][i] for j in range(3)] for i in range(3)]
    turns = [m[2][1] - m[1][2], m[0][2] - m[2][0], m[1][0] - m[0][1]]
    for i in range(3):
        sums[i][i] = 1 - trace + 2 * m[i][i]
    rows = [[*sums[i], turns[i]] for i in range(3)] + [[*turns, 1 + trace]]
    outer = snp.stack([snp.stack(row, -1) for row in rows], -2)
    longest = snp.argmax(snp.stack([m[0][0], m[1][1], m[2][2], trace], -1), -1)
    chosen = snp.take_along_axis(outer, longest[..., None, None], -2)[..., 0, :]
    return normalized(chosen)


# --- vectors along the axis of rotation ---


def rotvec_of(quat: Any) -> Any:
    """Return vectors along the axis, as long as the angle, at most a half turn."""
    quat = snp.where(quat[..., 3:] < 0, -quat, quat)
    vector = quat[..., :3]
    angle = 2 * snp.arctan2(snp.linalg.norm(vector, axis=-1, keepdims=True), quat[..., 3:])
    series = 2 + angle**2 / 12 + 7 * angle**4 / 2880
    return vector * snp.where(angle <= SMALL, series, angle / snp.sin(angle / 2))


def of_rotvec(rotvec: Any) -> Any:
    """Return the quaternions of vectors along the axis, as long as the angle."""
    angle = snp.linalg.norm(rotvec, axis=-1, keepdims=True)
    series = 0.5 - angle**2 / 48 + angle**4 / 3840
    scale = snp.where(angle <= SMALL, series, snp.sin(angle / 2) / angle)
    return snp.concatenate([scale * rotvec, snp.cos(angle / 2)], -1)


def mrp_of(quat: Any) -> Any:
    """Return vectors along the axis, as long as the tangent of a quarter of the angle."""
    sign = snp.where(quat[..., 3:] < 0, -1, 1)
    return sign * quat[..., :3] / (1 + sign * quat[..., 3:])


def of_mrp(mrp: Any) -> Any:
    """Return the quaternions of vectors as long as the tangent of a quarter of the angle."""
    square = snp.sum(mrp * mrp, -1, keepdims=True)
    return snp.concatenate([2 * mrp, 1 - square], -1) / (1 + square)


# --- Euler angles; axes are numbers ---


def of_euler(angles: Any, axes: Sequence[int], is_intrinsic: bool) -> Any:
    """Return quaternions of turns about `axes` one after the other, angles in the last axis."""
    total: Any = None
    for place, axis in enumerate(axes):
        half = angles[..., place] / 2
        components = [snp.zeros_like(half)] * 3 + [snp.cos(half)]
        components[axis] = snp.sin(half)
        turn = snp.stack(components, -1)
        if total is None:
            total = turn
        else:
            total = composed(total, turn) if is_intrinsic else composed(turn, total)
    return total


def euler_of(quat: Any, axes: Sequence[int], is_intrinsic: bool) -> Any:
    """Return the angles of turns about three `axes`, from minus to plus a half turn.

    Where only the sum or the difference of the first and the last is decided the last is 0.
    """
    i, j, k = axes[::-1] if is_intrinsic else axes
    is_symmetric = i == k
    if is_symmetric:
        k = 3 - i - j
    sign = (i - j) * (j - k) * (k - i) // 2
    x, y, z, w = quat[..., i], quat[..., j], sign * quat[..., k], quat[..., 3]
    if not is_symmetric:
        x, y, z, w = x + z, y + w, z - x, w - y
    middle = 2 * snp.arctan2(snp.hypot(y, z), snp.hypot(w, x))
    half_sum, half_difference = snp.arctan2(x, w), snp.arctan2(z, y)
    is_zero, is_half = middle <= _DEGENERATE, snp.abs(middle - math.pi) <= _DEGENERATE
    ends = [half_sum - half_difference, half_sum + half_difference]
    first, last = ends[::-1] if is_intrinsic else ends
    alone = 2 * half_difference if is_intrinsic else -2 * half_difference
    first = snp.where(is_zero, 2 * half_sum, snp.where(is_half, alone, first))
    last = snp.where(is_zero | is_half, 0, last)
    if not is_symmetric:
        middle = middle - math.pi / 2
        first, last = (sign * first, last) if is_intrinsic else (first, sign * last)
    angles = snp.stack([first, middle, last], -1)
    return snp.remainder(angles + math.pi, 2 * math.pi) - math.pi
