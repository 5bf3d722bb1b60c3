"""How similar texts are."""

from __future__ import annotations

import pyarrow as pa

from millpond.kernels.spark.rows import by_row


@by_row("spark.jaro_winkler.1", ("VARCHAR", "VARCHAR"), "DOUBLE", pa.float64())
def jaro_winkler(a: str, b: str) -> float:
    """The similarity of Jaro and Winkler: 1 for equal texts, 0 for texts with nothing in common."""
    if a == b:
        return 1.0
    if not a or not b:
        return 0.0
    reach = max(len(a), len(b)) // 2 - 1
    taken: set[int] = set()
    matches = []
    for place, sign in enumerate(a):
        for other in range(max(0, place - reach), min(len(b), place + reach + 1)):
            if other not in taken and b[other] == sign:
                taken.add(other)
                matches.append(sign)
                break
    count = len(matches)
    if not count:
        return 0.0
    swapped = sum(x != b[place] for x, place in zip(matches, sorted(taken), strict=True)) / 2
    jaro = (count / len(a) + count / len(b) + (count - swapped) / count) / 3
    common = next((n for n in range(min(4, len(a), len(b))) if a[n] != b[n]), min(4, len(a), len(b)))
    return jaro + common * 0.1 * (1 - jaro)
