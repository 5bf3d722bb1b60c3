"""Rows that repeat, and values that are not like others: NaN, infinities, both zeros, NULL, nothing (law 1)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sampling import first
from tests.sql.fuzz.cases import Case, Change, Shake, Table, View
from tests.sql.fuzz.play import play
from tests.sql.test_lowering import queries

BAG = Table(
    "b",
    {
        "id": "INTEGER", "k": "INTEGER", "v": "VARCHAR", "d": "DOUBLE", "m": "DECIMAL(10,2)", "ts": "TIMESTAMP",
        "l": "INTEGER[]",
    },
    keyed=False,
)  # fmt: skip
KEYED = Table("c", {"id": "INTEGER", "k": "INTEGER", "v": "VARCHAR"}, keyed=True)


def rows(table: Table, *texts: str) -> Change:
    return Change(table, tuple(tuple(text.split(" ")) for text in texts))


EPOCHS = (
    (
        rows(
            BAG,
            "1 1 'a' 0.0 1.5 '2024-01-01' [1,2]", "1 1 'a' 0.0 1.5 '2024-01-01' [1,2]",
            "2 NULL 'b' 'nan' 2 '2024-01-02' []", "3 2 NULL -0.0 NULL NULL NULL",
            "4 0 '' 'inf' -1 '2024-01-01T10:00' [NULL,0]", "6 1 'ab' 0.5 3 '2024-01-03' [2]",
        ),
        rows(KEYED, "1 1 'a'", "2 NULL 'b'", "3 3 'a'"),
    ),
    (
        rows(
            BAG, "7 0 '7' '-inf' 1 '2024-01-03' [1]", "1 1 'a' -0.0 1.5 '2024-01-01' [1,2]",
            "8 2 'a' 'nan' 0 '2024-01-01' [1,2]",
        ),
        rows(KEYED, "4 1 'zz'"),
    ),
    (
        Change(BAG, text="DELETE FROM b WHERE id = 1"),
        Change(KEYED, text="UPDATE c SET k = 2 WHERE id = 3"),
        Change(KEYED, text="DELETE FROM c WHERE id = 2"),
    ),
    (
        Change(BAG, text="UPDATE b SET k = 3, v = coalesce(v, 'a') WHERE k = 0"),
        Change(BAG, text="UPDATE b SET d = 1 WHERE d IN ('inf', '-inf')"),
        Change(KEYED, text="INSERT INTO c SELECT id + 10, k, v FROM c WHERE id < 10"),
    ),
    (Change(BAG, text="DELETE FROM b WHERE k IS NOT NULL"), Change(KEYED, text="DELETE FROM c")),
    (Change(BAG, text="DELETE FROM b"),),
)  # fmt: skip
SHAKES = (
    Shake(1),
    Shake(2),
    Shake(1, restart=True, compact=True),
    Shake(3),
    Shake(1, compact=True),
    Shake(1),
)


@pytest.mark.parametrize("part", first(1, range(4)))
def test_views_over_bags(part: int, tmp_path: Path) -> None:
    texts = queries(Path(__file__).parent / "bags.sql")[part::4]
    views = tuple(View(f"v{number}", text, 0) for number, text in enumerate(texts))
    outcome = play(tmp_path / "pond", Case(0, False, (BAG, KEYED), views, EPOCHS, SHAKES))
    assert not outcome.wrong, {texts[int(name[1:])]: told for name, told in outcome.wrong.items()}
    assert outcome.views == len(texts) and outcome.compared["duckdb"] > 5 * len(texts)
