"""Names of `jax.ad_checkpoint`."""

from stax.api.checkpoint import checkpoint
from stax.api.residuals import print_saved_residuals
from stax.operators.gradient import checkpoint_name

__all__ = ["checkpoint", "checkpoint_name", "print_saved_residuals"]
