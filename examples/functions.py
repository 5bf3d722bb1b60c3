"""Your own functions in SQL: an expression in SQL, and Python per row, per group and for many rows.

    python examples/functions.py

It runs inline, without a JVM.  For Spark leave out engine="inline"; nothing else changes.
"""

import tempfile
from collections.abc import Iterator
from typing import NamedTuple

import millpond

pond = millpond.open(tempfile.mkdtemp(), engine="inline")
pond.sql("""
    CREATE TABLE posts (id int PRIMARY KEY, author text, text text, at timestamp DEFAULT now());
    CREATE FUNCTION shout(who text, mark text DEFAULT '!') RETURNS text RETURN upper(who) || mark;
""")


@pond.function
def vowels(text: str) -> int:
    """A value for each row."""
    return sum(letter in "aeiou" for letter in text.lower())


class Tag(NamedTuple):
    tag: str
    place: int


@pond.function
def tags(text: str) -> Iterator[Tag]:
    """Any number of rows for each row."""
    for place, word in enumerate(text.split()):
        if word.startswith("#"):
            if word == "#":
                raise ValueError("a tag needs a name")
            yield Tag(word[1:], place)


@pond.function("longest")
class Longest:
    """A value for each group; rows may go again."""

    def __init__(self) -> None:
        self.best = ""

    def accumulate(self, text: str) -> None:
        self.best = max(self.best, text, key=lambda t: (len(t), t))

    def finish(self) -> str:
        return self.best


pond.sql("""
    CREATE MATERIALIZED VIEW by_author AS
        SELECT shout(author) AS author, count(*) AS posts, sum(vowels(text)) AS vowels,
               longest(text) AS longest
        FROM posts GROUP BY author;
    CREATE MATERIALIZED VIEW by_tag AS
        SELECT t.tag, count(*) AS posts FROM posts, tags(posts.text) AS t GROUP BY t.tag;
    INSERT INTO posts (id, author, text) VALUES
        (1, 'ann', 'Flood at the mill #river'), (2, 'ann', 'All quiet'),
        (3, 'bob', '#river and #ducks'), (4, 'bob', 'oh #');
    FLUSH
""")
print("by author:", *sorted(pond.sql("SELECT * FROM by_author").fetchall()), sep="\n    ")
print("by tag:", sorted(pond.sql("SELECT * FROM by_tag").fetchall()))
pond.sql("DELETE FROM posts WHERE id = 1; FLUSH")
print("taken back:", *sorted(pond.sql("SELECT * FROM by_author").fetchall()), sep="\n    ")
print("by tag:", sorted(pond.sql("SELECT * FROM by_tag").fetchall()))
print("not lost:", *(error["reason"] for error in pond.errors("by_tag").to_pylist()))
print("functions:", *(row[3] for row in pond.sql("SHOW FUNCTIONS").fetchall()), sep="\n    ")
pond.close()
