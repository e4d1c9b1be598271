"""Rotations between rotations, at an even speed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import stax.numpy as snp
from stax.errors import ArgumentError, ArgumentValueError
from stax.scipy.spatial.transform.rotation import Rotation
from stax.tree_util import register_dataclass

__all__ = ["Slerp"]


@register_dataclass
@dataclass(frozen=True, eq=False)
class Slerp:
    """Rotations as a function of time, made by `Slerp.init`.

    From each of `rotations`, at `times`, it is `rotvecs` to the next, and takes `timedelta`.
    """

    times: Any
    timedelta: Any
    rotations: Rotation
    rotvecs: Any

    @classmethod
    def init(cls, times: Any, rotations: Rotation) -> Slerp:
        """Return what passes through a row of rotations at increasing `times`.

        Raises ArgumentError for what is no row of rotations, ArgumentValueError for less than two
        of them and where there is not one time for each.
        """
        if not isinstance(rotations, Rotation):
            raise ArgumentError(
                f"Slerp: {type(rotations).__name__} is no Rotation.", advice="Pass a Rotation."
            )
        if rotations.single or len(rotations) < 2:
            raise ArgumentValueError(
                "Slerp: there is nothing between less than two rotations.",
                advice="Pass a row of rotations, such as Rotation.concatenate makes.",
            )
        times = snp.asarray(times, rotations.quat.dtype)
        if times.shape != (len(rotations),):
            raise ArgumentValueError(
                f"Slerp: times {times.type} for {len(rotations)} rotations.",
                advice="Pass a vector with one time for each.",
            )
        starts = rotations[:-1]
        steps = (starts.inv() * rotations[1:]).as_rotvec()
        return cls(times, snp.diff(times), starts, steps)

    def __call__(self, times: Any) -> Rotation:
        """Return the rotations at `times`: a vector of them, or one."""
        at = snp.asarray(times, self.times.dtype)
        if at.ndim > 1:
            raise ArgumentValueError(
                f"Slerp: times {at.type} are no vector.", advice="Use vmap for several vectors."
            )
        last = self.timedelta.shape[0] - 1
        step = snp.clip(snp.searchsorted(self.times, at) - 1, 0, last)
        share = (at - self.times[step]) / self.timedelta[step]
        turn = Rotation.from_rotvec(self.rotvecs[step] * share[..., None])
        return self.rotations[step] * turn
