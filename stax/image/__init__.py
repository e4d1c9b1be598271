"""`jax.image`: images in other sizes."""

from __future__ import annotations

from stax.image.resampling import ResizeMethod, resize, scale_and_translate

__all__ = ["ResizeMethod", "resize", "scale_and_translate"]
