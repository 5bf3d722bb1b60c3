"""HyperLogLog: the number of distinct values of a group from 4,096 registers, with a standard error of 1.6 %.

A register holds the longest run of leading zeros among the hashes that fall into it.  The estimate is
Ertl's (2017) closed form, which needs no tables and is good from 0 to 10**15 values.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.kernels.synopses.cell_sketch import CellSketch, Ints
from millpond.kernels.synopses.item_hashes import U64

PRECISION = 12
REGISTERS = 1 << PRECISION
SKETCH = CellSketch("hll", 1, REGISTERS, "register")
STANDARD_ERROR = 1.04 / REGISTERS**0.5
_RUN_MAX = 64 - PRECISION
_ALPHA = 0.5 / np.log(2.0)

Floats = npt.NDArray[np.float64]


def cells(hashes: U64) -> tuple[Ints, Ints]:
    """The register of each hash, and the run of zeros that it shows."""
    index = (hashes >> np.uint64(_RUN_MAX)).astype(np.int64)
    rest = (hashes & np.uint64((1 << _RUN_MAX) - 1)).astype(np.float64)  # 52 bits: exact in a double
    _, length = np.frexp(rest)
    return index, (_RUN_MAX - length + 1).astype(np.int64)


def estimates(sketches: pa.Array) -> Floats:
    """The number of distinct values of each sketch; 0 for NULL."""
    number, _, run = SKETCH.cells_of(sketches)
    columns = _RUN_MAX + 2
    seen = np.bincount(number * columns + run, minlength=len(sketches) * columns)
    counts = seen.reshape(len(sketches), columns).astype(np.float64)
    counts[:, 0] = REGISTERS - counts.sum(axis=1)
    z = REGISTERS * _tau(1 - counts[:, _RUN_MAX + 1] / REGISTERS)
    for run_length in range(_RUN_MAX, 0, -1):
        z = 0.5 * (z + counts[:, run_length])
    z += REGISTERS * _sigma(counts[:, 0] / REGISTERS)
    with np.errstate(divide="ignore"):
        return np.where(np.isinf(z), 0.0, _ALPHA * REGISTERS**2 / z)


def _sigma(x: Floats) -> Floats:
    total, power, scale = x.copy(), x.copy(), 1.0
    for _ in range(64):
        power = power * power
        more = power * scale
        scale *= 2
        total = total + more
        if not (more > 0).any():
            break
    return np.where(x == 1.0, np.inf, total)


def _tau(x: Floats) -> Floats:
    root, total, scale = x.copy(), 1 - x, 1.0
    for _ in range(64):
        root = np.sqrt(root)
        scale *= 0.5
        total = total - (1 - root) ** 2 * scale
    return np.where((x == 0.0) | (x == 1.0), 0.0, total / 3)
