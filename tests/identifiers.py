"""Names of test parameters that are the same in every process of a parallel run."""


def shown(value: object) -> str:
    """Return the repr of a value, or its class where the repr holds an address."""
    text = repr(value)
    return type(value).__name__ if " at 0x" in text else text
