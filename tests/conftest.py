"""Settings of every test run: checks after every pass, no silent fallback, repeatable examples."""

import os

# Read when stax is imported, so set before any test module is.
os.environ.setdefault("STAX_VERIFY", "1")
os.environ.setdefault("STAX_STRICT", "1")
# The comparisons are with JAX's CPU backend, also on a machine that has an accelerator.
os.environ.setdefault("JAX_PLATFORMS", "cpu")

from hypothesis import HealthCheck, settings

settings.register_profile(
    "ci",
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("ci")
