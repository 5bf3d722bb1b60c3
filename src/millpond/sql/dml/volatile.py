"""Functions whose value differs from call to call."""

from __future__ import annotations

from millpond.sql.text.parse import SqlFragment, tokens_of

CHANCE = ("RANDOM", "UUID", "GEN_RANDOM_UUID", "UUIDV4", "UUIDV7", "SETSEED", "NEXTVAL", "CURRVAL")


def calls_chance(sql: str) -> bool:
    """Does a query call such a function, or take a sample?

    >>> calls_chance("select n from t order by random()"), calls_chance("select random from t")
    (True, False)
    """
    words = SqlFragment(sql, tokens_of(sql, "duckdb"), "duckdb").words
    pairs = zip(words, [*words[1:], ""], strict=True)
    return any(
        (word in CHANCE and after == "(") or word in ("TABLESAMPLE", "SAMPLE") for word, after in pairs
    )
