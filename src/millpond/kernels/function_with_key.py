"""A function over the rows of one key whose result gets the columns of the key."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from millpond.kernels.python_rows import Row


@dataclass(frozen=True)
class FunctionWithKey:
    """The function and the columns of its key.

    The docstring is needed: without one, `dataclass` of Python 3.11.2 fails on a class with `__wrapped__`.
    """

    function: Callable[[Row, pa.Table], pa.Table]
    key: tuple[str, ...]

    @property
    def __wrapped__(self) -> Callable[[Row, pa.Table], pa.Table]:
        return self.function  # errors report the user's own line

    def __call__(self, key: Row, rows: pa.Table) -> pa.Table:
        returned: Any = self.function(key, rows)
        if not isinstance(returned, pa.Table):
            return returned  # refused with the name of the function
        out = returned
        for index, name in enumerate(self.key):
            if name not in returned.column_names:
                value = rows.column(name)[0]
                out = out.add_column(index, rows.schema.field(name), pa.repeat(value, returned.num_rows))
        return out
