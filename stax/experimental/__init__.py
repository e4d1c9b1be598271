"""Parts of jax.experimental: callbacks that do something, and checks that travel as values."""

from stax.api.callbacks import io_callback
from stax.experimental import checkify

__all__ = ["checkify", "io_callback"]
