"""Calls with a syntax of their own that DuckDB cannot parse, rewritten on the tokens of a text.

- `(a, b) OVERLAPS (c, d)` is a call of overlaps.
- Hypothetical-set aggregates, `rank(v) WITHIN GROUP (ORDER BY x)`, count the rows that come before.
- `json_to_record(j) AS r(a int, b text)` and its relatives select the fields, cast to their types.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

_RANKS = ("rank", "dense_rank", "percent_rank", "cume_dist")
_RECORDS = ("json_to_record", "jsonb_to_record", "json_to_recordset", "jsonb_to_recordset")
SUSPECT = r"|\boverlaps\b|\bwithin\s+group\b|\bjsonb?_to_record(?:set)?\b"
Edit = tuple[int, int, str]


class TextToken(Protocol):
    @property
    def text(self) -> str: ...
    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...


Tokens = Sequence[TextToken]


def call_edit(tokens: Tokens, sql: str) -> Edit | None:
    """The first of these calls, and the text that replaces it."""
    for n, token in enumerate(tokens):
        word = token.text.lower()
        if word == "overlaps" and n and tokens[n - 1].text == ")" and _is(tokens, n + 1, "("):
            return _overlaps(tokens, n, sql)
        if word in _RANKS and _is(tokens, n + 1, "("):
            end = _closing(tokens, n + 1)
            if _is(tokens, end + 1, "within") and _is(tokens, end + 2, "group") and _is(tokens, end + 3, "("):
                return _hypothetical(tokens, n, end, sql)
        if word in _RECORDS and _is(tokens, n + 1, "("):
            found = _record(tokens, n, sql)
            if found is not None:
                return found
    return None


def _is(tokens: Tokens, place: int, word: str) -> bool:
    return 0 <= place < len(tokens) and tokens[place].text.lower() == word


def _closing(tokens: Tokens, opening: int) -> int:
    depth = 0
    for n in range(opening, len(tokens)):
        depth += tokens[n].text in ("(", "[")
        depth -= tokens[n].text in (")", "]")
        if not depth:
            return n
    return len(tokens) - 1


def _opening(tokens: Tokens, closing: int) -> int:
    depth = 0
    for n in range(closing, -1, -1):
        depth += tokens[n].text in (")", "]")
        depth -= tokens[n].text in ("(", "[")
        if not depth:
            return n
    return 0


def _between(tokens: Tokens, opening: int, closing: int, sql: str) -> str:
    return sql[tokens[opening].end : tokens[closing].start]


def _parts(tokens: Tokens, opening: int, closing: int) -> list[tuple[int, int]]:
    """The parts between commas, as places of their first and last tokens."""
    found: list[tuple[int, int]] = []
    depth, first = 0, opening + 1
    for n in range(opening + 1, closing):
        text = tokens[n].text
        depth += text in ("(", "[")
        depth -= text in (")", "]")
        if text == "," and not depth:
            found.append((first, n - 1))
            first = n + 1
    return [*found, (first, closing - 1)] if first < closing else found


def _shown(tokens: Tokens, part: tuple[int, int], sql: str) -> str:
    return sql[tokens[part[0]].start : tokens[part[1]].end]


def _overlaps(tokens: Tokens, n: int, sql: str) -> Edit:
    first, last = _opening(tokens, n - 1), _closing(tokens, n + 1)
    left, right = _between(tokens, first, n - 1, sql), _between(tokens, n + 1, last, sql)
    start = first - 1 if _is(tokens, first - 1, "row") else first
    return tokens[start].start, tokens[last].end, f"overlaps({left}, {right})"


def _hypothetical(tokens: Tokens, n: int, end: int, sql: str) -> Edit:
    last = _closing(tokens, end + 3)
    parts = _parts(tokens, n + 1, end)
    keys = [_key(tokens, part, sql) for part in _parts(tokens, end + 3, last)]
    opening, limit = n + 1, ""
    if _is(tokens, last + 1, "filter"):
        closing = _closing(tokens, last + 2)
        limit = sql[tokens[last + 3].end : tokens[closing].start]
        last = closing
    rolled_up = _rolled_up(tokens, n, last)
    columns = dict.fromkeys(text for _, _, text in _columns(tokens, opening, end, rolled_up, sql))
    cases = []
    for absent in _subsets(list(columns)):
        values = [_without(tokens, part, absent, rolled_up, sql) for part in parts]
        cases.append((absent, _counted(tokens[n].text.lower(), keys, values, limit)))
    text = cases[-1][1]
    for absent, counted in reversed(cases[:-1]):
        tests = [f"grouping({column}) = {int(column in absent)}" for column in columns]
        text = f"CASE WHEN {' AND '.join(tests)} THEN {counted} ELSE {text} END"
    return tokens[n].start, tokens[last].end, text if len(cases) == 1 else f"({text})"


def _rolled_up(tokens: Tokens, first: int, last: int) -> frozenset[str]:
    """The words of the GROUP BY of a call's query, if it has grouping sets: their columns may be NULL there.

    Inside an aggregate a column has the values of the rows; the first arguments of `rank` are outside.
    """
    clause = _group_by(tokens, last + 1, 1) or _group_by(tokens, first - 1, -1)
    if clause is None:
        return frozenset()
    words = {tokens[n].text.lower() for n in range(*clause)}
    return frozenset(words - _NO_COLUMNS) if words & {"rollup", "cube", "sets"} else frozenset()


_NO_COLUMNS = {"rollup", "cube", "grouping", "sets", "(", ")", ",", "."}
_AFTER_GROUPS = ("having", "window", "order", "limit", "offset", "fetch", "union", "except", "intersect", ";")


def _group_by(tokens: Tokens, start: int, step: int) -> tuple[int, int] | None:
    """The places behind the GROUP BY of the query that the token at `start` belongs to."""
    n = start
    while 0 <= n < len(tokens):
        text = tokens[n].text.lower()
        if text in ("(", ")"):
            if (text == "(") == (step > 0):  # another part of the query, to be skipped
                n = _closing(tokens, n) if step > 0 else _opening(tokens, n)
            elif _is(tokens, (n if step < 0 else _opening(tokens, n)) + 1, "select"):
                return None  # the query ends here
        elif text == "group" and _is(tokens, n + 1, "by"):
            end = n + 2
            while end < len(tokens) and tokens[end].text.lower() not in (*_AFTER_GROUPS, ")"):
                end = _closing(tokens, end) + 1 if tokens[end].text == "(" else end + 1
            return n + 2, end
        elif text in ("union", "except", "intersect", ";"):
            return None
        n += step
    return None


def _columns(
    tokens: Tokens, opening: int, closing: int, names: frozenset[str], sql: str
) -> Iterator[tuple[int, int, str]]:
    """The columns with these names between two tokens: where they are, and their text."""
    for n in range(opening + 1, closing):
        token = tokens[n]
        if token.text.lower() in names and not _is(tokens, n + 1, "(") and not token.text[0].isdigit():
            first = n - 2 if _is(tokens, n - 1, ".") and n - 2 > opening else n
            if not _is(tokens, n + 1, "."):
                yield tokens[first].start, token.end, sql[tokens[first].start : token.end]


def _subsets(columns: list[str]) -> list[frozenset[str]]:
    """What may be absent in a grouping set, none first."""
    found: list[frozenset[str]] = [frozenset()]
    for column in columns:
        found += [one | {column} for one in found]
    return found


def _without(
    tokens: Tokens, part: tuple[int, int], absent: frozenset[str], names: frozenset[str], sql: str
) -> str:
    """The text of a part with NULL in place of the columns that are absent."""
    at, text = tokens[part[0]].start, ""
    for start, end, column in _columns(tokens, part[0] - 1, part[1] + 1, names, sql):
        text += sql[at:start] + ("NULL" if column in absent else column)
        at = end
    return text + sql[at : tokens[part[1]].end]


def _key(tokens: Tokens, part: tuple[int, int], sql: str) -> tuple[str, bool, bool]:
    """An expression of ORDER BY, whether it descends, and whether NULLs come first."""
    first, last = part
    if _is(tokens, first, "order"):
        first += 2
    nulls = None
    if _is(tokens, last - 1, "nulls"):
        nulls = tokens[last].text.lower() == "first"
        last -= 2
    descending = _is(tokens, last, "desc")
    if descending or _is(tokens, last, "asc"):
        last -= 1
    return _shown(tokens, (first, last), sql), descending, descending if nulls is None else nulls


def _counted(name: str, keys: list[tuple[str, bool, bool]], values: list[str], limit: str) -> str:
    pairs = list(zip(keys, values, strict=False))
    before, equal = "", " AND ".join(f"({k}) IS NOT DISTINCT FROM ({v})" for (k, _, _), v in pairs)
    for (key, descending, nulls_first), value in reversed(pairs):
        sign = ">" if descending else "<"
        null, other = (key, value) if nulls_first else (value, key)
        ahead = f"({key}) {sign} ({value}) OR (({null}) IS NULL AND ({other}) IS NOT NULL)"
        same = f"({key}) IS NOT DISTINCT FROM ({value})"
        before = f"{ahead} OR ({same} AND ({before}))" if before else ahead
    every = f" FILTER (WHERE {limit})" if limit else ""
    ahead = f"({before}) AND ({limit})" if limit else before
    if name == "rank":
        return f"(1 + count(*) FILTER (WHERE {ahead}))"
    if name == "dense_rank":
        return f"(1 + count(DISTINCT ROW({', '.join(k for k, _, _ in keys)})) FILTER (WHERE {ahead}))"
    if name == "percent_rank":
        rows = f"nullif(count(*){every}, 0)"
        return f"coalesce(CAST(count(*) FILTER (WHERE {ahead}) AS float8) / {rows}, 0)"
    met = f"({before}) OR ({equal})"
    met = f"({met}) AND ({limit})" if limit else met
    return f"(CAST(count(*) FILTER (WHERE {met}) + 1 AS float8) / (count(*){every} + 1))"


def _record(tokens: Tokens, n: int, sql: str) -> Edit | None:
    end = _closing(tokens, n + 1)
    at = end + 1 + _is(tokens, end + 1, "as")
    if at + 1 >= len(tokens) or not _is(tokens, at + 1, "("):
        return None
    alias, last = tokens[at].text, _closing(tokens, at + 1)
    fields = [_field(tokens, part, sql) for part in _parts(tokens, at + 1, last)]
    document = _between(tokens, n + 1, end, sql)
    name = tokens[n].text.lower()
    kind = "jsonb" if name.startswith("jsonb") else "json"
    rows = f"{kind}_array_elements({document})" if name.endswith("set") else f"(SELECT {document})"
    text = f"(SELECT {', '.join(fields)} FROM {rows} AS record_of(document)) AS {alias}"
    lateral = "" if _is(tokens, n - 1, "lateral") else "LATERAL "
    return tokens[n].start, tokens[last].end, lateral + text


def _field(tokens: Tokens, part: tuple[int, int], sql: str) -> str:
    name, kind = tokens[part[0]].text, _shown(tokens, (part[0] + 1, part[1]), sql)
    key = name[1:-1].replace('""', '"') if name.startswith('"') else name.lower()
    whole = kind.lower() in ("json", "jsonb") or kind.endswith("]")
    quoted = key.replace("'", "''")
    return f"""CAST("{"->" if whole else "->>"}"(document, '{quoted}') AS {kind}) AS {name}"""
