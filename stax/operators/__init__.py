"""The ops, each in one place with all its rules; files are cut by kind of index behaviour.

`table()` prints which op has which rule, and why a cell is empty.
"""

from stax.operators.table import table as table
