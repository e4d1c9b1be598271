"""One rotation in space, or a row of them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import stax.numpy as snp
from stax import random
from stax.errors import ArgumentError, ArgumentValueError, ShapeError
from stax.numpy.arguments import inexact, static_int
from stax.operators.elementwise import convert
from stax.scipy.spatial.transform import quaternions
from stax.tree_util import register_dataclass

__all__ = ["Rotation"]


def _numbers(x: Any) -> Any:
    x = inexact("Rotation", snp.asarray(x))
    return convert(x, x.dtype)


def _vectors(x: Any, *ends: int) -> Any:
    """Return numbers whose last axes have the lengths `ends`; raises ShapeError for others."""
    x = _numbers(x)
    if x.shape[x.ndim - len(ends) :] != ends:
        raise ShapeError(
            f"Rotation: {x.type} does not end with axes of lengths {ends}.",
            advice="Quaternions have four components, vectors three, matrices three rows of three.",
        )
    return x


def _axes(seq: str, least: int) -> tuple[list[int], bool]:
    """Return the numbers of the axes that `seq` names, and whether they turn along (capitals)."""
    is_intrinsic = re.fullmatch("[XYZ]{1,3}", seq) is not None
    if not (is_intrinsic or re.fullmatch("[xyz]{1,3}", seq)) or len(seq) < least:
        raise ArgumentValueError(
            f"Rotation: {seq!r} does not name axes.",
            advice="Write 'xyz' for axes that stay, 'XYZ' for axes that turn along.",
        )
    if any(a == b for a, b in itertools.pairwise(seq)):
        raise ArgumentValueError(
            f"Rotation: {seq!r} names an axis twice in a row.", advice="Add the angles instead."
        )
    return ["xyz".index(c) for c in seq.lower()], is_intrinsic


@register_dataclass
@dataclass(frozen=True, eq=False)
class Rotation:
    """A rotation by the quaternion `quat`, (x, y, z, w) of length 1, or a row of rotations.

    Euler angles turn about the axes that a string names, one after the other: about axes that stay
    ("xyz"), or that turn along ("XYZ").  Angles are in radians unless `degrees`.

    >>> quarter = Rotation.from_euler("z", 90, degrees=True)
    >>> (quarter * quarter).magnitude()
    Array(3.1415927, dtype=float32)
    """

    quat: Any

    # --- made of ---

    @classmethod
    def concatenate(cls, rotations: Sequence[Rotation]) -> Rotation:
        """Return rows of rotations as one row."""
        return cls(snp.concatenate([rotation.quat for rotation in rotations]))

    @classmethod
    def from_euler(cls, seq: str, angles: Any, degrees: bool = False) -> Rotation:
        """Return the rotation by `angles`, of which the last axis has one for each in `seq`."""
        axes, is_intrinsic = _axes(seq, 1)
        angles = _vectors(snp.atleast_1d(_numbers(angles)), len(axes))
        if degrees:
            angles = snp.deg2rad(angles)
        return cls(quaternions.of_euler(angles, axes, is_intrinsic))

    @classmethod
    def from_matrix(cls, matrix: Any) -> Rotation:
        """Return the rotation of an orthogonal matrix with determinant 1."""
        return cls(quaternions.of_matrix(_vectors(matrix, 3, 3)))

    @classmethod
    def from_mrp(cls, mrp: Any) -> Rotation:
        """Return the rotation of a modified Rodrigues vector."""
        return cls(quaternions.of_mrp(_vectors(mrp, 3)))

    @classmethod
    def from_quat(cls, quat: Any) -> Rotation:
        """Return the rotation of a quaternion (x, y, z, w), which is normalized."""
        return cls(quaternions.normalized(_vectors(quat, 4)))

    @classmethod
    def from_rotvec(cls, rotvec: Any, degrees: bool = False) -> Rotation:
        """Return the rotation about a vector, by its length."""
        rotvec = _vectors(rotvec, 3)
        return cls(quaternions.of_rotvec(snp.deg2rad(rotvec) if degrees else rotvec))

    @classmethod
    def identity(cls, num: int | None = None, dtype: Any = float) -> Rotation:
        """Return the rotation that moves nothing, or a row of `num` of them."""
        quat = snp.array([0, 0, 0, 1], dtype)
        return cls(quat if num is None else snp.tile(quat, (static_int("identity", "num", num), 1)))

    @classmethod
    def random(cls, random_key: Any, num: int | None = None) -> Rotation:
        """Return a rotation drawn from all of them evenly, or a row of `num`; JAX has none."""
        shape = (4,) if num is None else (static_int("random", "num", num), 4)
        return cls(quaternions.normalized(random.normal(random_key, shape)))

    # --- a row ---

    @property
    def single(self) -> bool:
        """Whether this is one rotation, and no row."""
        return bool(self.quat.ndim == 1)

    def _require_row(self) -> None:
        if self.single:
            raise ArgumentError(
                "Rotation: one rotation has no length and no elements.",
                advice="Make a row of it: Rotation(rotation.quat[None]).",
            )

    def __getitem__(self, indexer: Any) -> Rotation:
        """Return the rotations of a row at an index."""
        self._require_row()
        return Rotation(self.quat[indexer])

    def __len__(self) -> int:
        """Return the number of rotations in a row."""
        self._require_row()
        return int(self.quat.shape[0])

    # --- what it does ---

    def __mul__(self, other: Rotation) -> Rotation:
        """Return the rotation by `other`, followed by this one."""
        return Rotation(quaternions.normalized(quaternions.composed(self.quat, other.quat)))

    def apply(self, vectors: Any, inverse: bool = False) -> Any:
        """Return vectors turned by this rotation, or back if `inverse`."""
        rotation = self.inv() if inverse else self
        vectors = _vectors(vectors, 3)
        return snp.matmul(rotation.as_matrix(), vectors[..., None])[..., 0]

    def inv(self) -> Rotation:
        """Return the rotation that undoes this one."""
        return Rotation(self.quat * snp.array([-1, -1, -1, 1], self.quat.dtype))

    def magnitude(self) -> Any:
        """Return the angle, at most a half turn."""
        vector, w = self.quat[..., :3], self.quat[..., 3]
        return 2 * snp.arctan2(snp.linalg.norm(vector, axis=-1), snp.abs(w))

    def mean(self, weights: Any = None) -> Rotation:
        """Return the rotation from which those of a row differ least, by the squares of sines.

        Raises ArgumentValueError where there is not one weight for each rotation.
        """
        count = len(self)
        weights = snp.ones(count) if weights is None else snp.asarray(weights)
        if weights.shape != (count,):
            raise ArgumentValueError(
                f"Rotation.mean: weights {weights.type} for {count} rotations.",
                advice="Pass a vector with one weight for each.",
            )
        scaled = weights.astype(self.quat.dtype)[:, None] * self.quat
        return Rotation(snp.linalg.eigh(scaled.T @ self.quat)[1][:, -1])

    # --- as ---

    def as_euler(self, seq: str, degrees: bool = False) -> Any:
        """Return the angles about the three axes that `seq` names.

        Where only the sum or the difference of the outer two is decided the last is 0.
        """
        axes, is_intrinsic = _axes(seq, 3)
        angles = quaternions.euler_of(self.quat, axes, is_intrinsic)
        return snp.rad2deg(angles) if degrees else angles

    def as_matrix(self) -> Any:
        """Return the matrix that turns column vectors."""
        return quaternions.matrix_of(self.quat)

    def as_mrp(self) -> Any:
        """Return the modified Rodrigues vector, of length 1 at most."""
        return quaternions.mrp_of(self.quat)

    def as_quat(self, canonical: bool = False, scalar_first: bool = False) -> Any:
        """Return the quaternion; if `canonical` the one of q and -q whose w is positive."""
        quat = quaternions.canonical(self.quat) if canonical else self.quat
        return snp.roll(quat, 1, -1) if scalar_first else quat

    def as_rotvec(self, degrees: bool = False) -> Any:
        """Return the vector along the axis whose length is the angle, at most a half turn."""
        rotvec = quaternions.rotvec_of(self.quat)
        return snp.rad2deg(rotvec) if degrees else rotvec
