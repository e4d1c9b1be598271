"""The matrix of ops and rules is complete: an empty cell has a written reason."""

from pathlib import Path

from stax.operators import table
from stax.operators.table import RULES, cells

GOLDEN = Path(__file__).parent.parent / "golden" / "op_table.txt"


def test_every_cell_is_a_rule_or_a_reason() -> None:
    for name, marks in cells().items():
        assert set(marks) == set(RULES), name
        assert all(marks.values()), name


def test_the_table_is_the_golden_one(request) -> None:
    # Update with --update-golden and review the difference.
    if request.config.getoption("--update-golden", default=False):
        GOLDEN.parent.mkdir(exist_ok=True)
        GOLDEN.write_text(table() + "\n")
    assert GOLDEN.read_text() == table() + "\n"
