"""Every scalar function of DuckDB, called with arguments of the types it says it takes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import duckdb

# A column for each type, with values that most functions can do something with; then constants for those
# that must know an argument beforehand.
COLUMNS = {
    "c_bool": ("BOOLEAN", ["true", "false", "NULL"]),
    "c_tiny": ("TINYINT", ["1", "3", "NULL"]),
    "c_small": ("SMALLINT", ["2", "1", "NULL"]),
    "c_int": ("INTEGER", ["1", "2", "NULL"]),
    "c_big": ("BIGINT", ["3", "1", "NULL"]),
    "c_huge": ("HUGEINT", ["2", "170141183460469231731687303715884105727", "NULL"]),
    "c_utiny": ("UTINYINT", ["1", "2", "NULL"]),
    "c_usmall": ("USMALLINT", ["1", "2", "NULL"]),
    "c_uint": ("UINTEGER", ["1", "2", "NULL"]),
    "c_ubig": ("UBIGINT", ["1", "2", "NULL"]),
    "c_uhuge": ("UHUGEINT", ["1", "2", "NULL"]),
    "c_float": ("FLOAT", ["0.5", "1", "NULL"]),
    "c_double": ("DOUBLE", ["0.25", "1", "NULL"]),
    "c_dec": ("DECIMAL(10,2)", ["0.25", "1.00", "NULL"]),
    "c_text": ("VARCHAR", ["'a b'", "'day'", "NULL"]),
    "c_blob": ("BLOB", ["'ab'", "'\\x00'", "NULL"]),
    "c_bit": ("BIT", ["'101'", "'110'", "NULL"]),
    "c_date": ("DATE", ["'2024-02-29'", "'1969-12-31'", "NULL"]),
    "c_time": ("TIME", ["'01:02:03.5'", "'00:00:00'", "NULL"]),
    "c_timens": ("TIME_NS", ["'01:02:03.5'", "'00:00:00'", "NULL"]),
    "c_timetz": ("TIME WITH TIME ZONE", ["'01:02:03+01'", "'00:00:00+00'", "NULL"]),
    "c_ts": ("TIMESTAMP", ["'2024-02-29 01:02:03.456789'", "'1969-12-31 23:59:59'", "NULL"]),
    "c_tss": ("TIMESTAMP_S", ["'2024-02-29 01:02:03'", "'1969-12-31 23:59:59'", "NULL"]),
    "c_tsms": ("TIMESTAMP_MS", ["'2024-02-29 01:02:03.456'", "'1969-12-31 23:59:59'", "NULL"]),
    "c_tsns": ("TIMESTAMP_NS", ["'2024-02-29 01:02:03.456789123'", "'1969-12-31 23:59:59'", "NULL"]),
    "c_tstz": ("TIMESTAMP WITH TIME ZONE", ["'2024-02-29 01:02:03.456789+00'", "'1969-12-31 23:59:59+00'", "NULL"]),
    "c_iv": ("INTERVAL", ["'1 month 2 days 03:04:05'", "'-1 day'", "NULL"]),
    "c_uuid": ("UUID", ["'11111111-2222-4333-8444-555555555555'", "'00000000-0000-0000-0000-000000000000'", "NULL"]),
    "c_json": ("JSON", ["'{\"a\": [1, \"x\"]}'", "'[1, null]'", "NULL"]),
    "c_ints": ("INTEGER[]", ["[1, 2, 2]", "[]", "NULL"]),
    "c_bigs": ("BIGINT[]", ["[1, 2]", "[1]", "NULL"]),
    "c_texts": ("VARCHAR[]", ["['a', 'b']", "['a', NULL]", "NULL"]),
    "c_doubles": ("DOUBLE[]", ["[0.5, 1]", "[1, 2]", "NULL"]),
    "c_bools": ("BOOLEAN[]", ["[true, false, true]", "[false]", "NULL"]),
    "c_lists": ("INTEGER[][]", ["[[1], [2, 3]]", "[]", "NULL"]),
    "c_arr": ("FLOAT[3]", ["[1, 2, 3]", "[0.5, 1, 0]", "NULL"]),
    "c_darr": ("DOUBLE[3]", ["[1, 2, 3]", "[0.5, 1, 0]", "NULL"]),
    "c_struct": ("STRUCT(a INTEGER, b VARCHAR)", ["{'a': 1, 'b': 'x'}", "{'a': NULL, 'b': 'y'}", "NULL"]),
    "c_map": ("MAP(VARCHAR, INTEGER)", ["MAP {'a': 1}", "MAP {}", "NULL"]),
    "c_entries": ("STRUCT(k VARCHAR, v INTEGER)[]", ["[{'k': 'a', 'v': 1}]", "[]", "NULL"]),
    "c_enum": ("ENUM('z', 'a')", ["'z'", "'a'", "NULL"]),
}  # fmt: skip

_ANY = ["c_int", "c_text", "c_ints", "c_double", "c_ts", "c_struct", "c_enum"]
_BY_TYPE: dict[str, list[str]] = {}
for _name, (_kind, _) in COLUMNS.items():
    _BY_TYPE.setdefault(_kind.split("(")[0] if _kind.startswith("DECIMAL") else _kind, []).append(_name)
_BY_TYPE |= {
    "ANY": _ANY, "T": _ANY, "K": ["c_text"], "V": ["c_int"], "ANY[]": ["c_ints", "c_texts", "c_lists"],
    "T[]": ["c_ints", "c_texts"], "T[][]": ["c_lists"], "LIST": ["c_ints"], "ARRAY": ["c_arr"], "STRUCT": ["c_struct"],
    "MAP(K, V)": ["c_map"], "MAP(ANY, ANY)": ["c_map"], "MAP": ["c_map"], "LAMBDA": ["lambda x: x = x"],
    "VARCHAR": ["c_text", "'a'", "'day'", "'%Y'", "'$.a'", "'UTC'", "'c_text'", "'sum'", "'gregorian'"],
    "INTEGER": ["c_int", "2"], "BIGINT": ["c_big", "2"], "INTEGER_LITERAL": ["2"], "ANYENUM": ["c_enum"],
    "FLOAT[ANY]": ["c_arr"], "DOUBLE[ANY]": ["c_darr"], "ANY[ANY]": ["c_arr"], "NULL": ["NULL"],
    "STRUCT(K, V)[]": ["c_entries"], "DECIMAL": ["c_dec"], "VARCHAR[]": ["c_texts", "['$.a', '$']"],
    "ENUM": ["c_enum"], "ANY[][]": ["c_lists"], "TUPLE": ["row(c_int, c_text)"], "VARIANT": ["c_int::variant"],
}  # fmt: skip


def samples(con: duckdb.DuckDBPyConnection) -> None:
    """The table `s` of a few rows."""
    con.execute(f"create table s ({', '.join(f'{n} {k}' for n, (k, _) in COLUMNS.items())})")
    for number in range(3):
        con.execute(f"insert into s values ({', '.join(v[number] for _, v in COLUMNS.values())})")


def functions(con: duckdb.DuckDBPyConnection) -> list[tuple[str, list[str], str]]:
    """(name, types of its parameters, type of more of them) of every scalar function that is steady."""
    return con.execute(
        """select distinct function_name, parameter_types, coalesce(varargs, '') from duckdb_functions()
           where function_type in ('scalar', 'macro') and database_name = 'system'
             and coalesce(stability, 'CONSISTENT') = 'CONSISTENT' and function_name not like 'current_%'
           order by all"""
    ).fetchall()


def calls(name: str, types: list[str], more: str) -> Iterator[str]:
    """Calls of a function to try, the plainest first."""
    lists = [_BY_TYPE.get(str(t), _ANY) for t in types]
    if more:
        lists += [_BY_TYPE.get(more, _ANY)] * (2 if not types else 1)
    called = '"' + name.replace('"', '""') + '"'
    for given in islice(_mixed(lists), 120):
        yield f"{called}({', '.join(given)})"


def _mixed(lists: list[list[str]]) -> Iterator[list[str]]:
    if not lists:
        yield []
        return
    total = max(len(found) for found in lists)
    for number in range(total):  # all together along the lists, then every mixture
        yield [found[min(number, len(found) - 1)] for found in lists]
    for rest in _mixed(lists[1:]):
        for first in lists[0]:
            yield [first, *rest]


MORE = [
    "list_aggr(c_ints, 'sum')", "aggregate(c_ints, 'max')", "list_reduce(c_ints, lambda x, y: x + y + c_int)",
    "reduce(c_bigs, lambda x, y: x * y, c_big)", "array_reduce(c_bigs, lambda x, y, i: x * y + i)",
    "list_transform(c_ints, lambda x, i: x * i + c_int)", "list_filter(c_texts, lambda x: x = c_text or x > 'a')",
    "array_to_string(c_texts, ',')", "array_to_json(c_ints)", "to_json(c_struct)", "json_quote(c_text)",
    "row_to_json(c_struct)", "from_json(c_json, '\"JSON\"')", "json_transform(c_json, '{\"a\": [\"VARCHAR\"]}')",
    "struct_insert(c_struct, z := c_int)", "struct_update(c_struct, a := 7)", "struct_concat(c_struct, {'z': 1})",
    "map_concat(c_map, c_map)", "cardinality(c_map)", "map_from_entries(c_entries)", "map_contains_value(c_map, 1)",
    "map_contains_entry(c_map, 'a', 1)", "list_bool_and(c_bools)", "list_bool_or(c_bools)",
    "constant_or_null(1, c_int)", "create_sort_key(c_int, 'DESC')", "switch(c_int, MAP {1: 'x'}, 'y')",
    "union_tag(union_value(k := c_int))", "union_extract(union_value(k := c_int), 'k')", "invoke(lambda x: x + 1, c_int)",
    "struct_pack(x := c_int, y := c_text)", "coalesce(c_int, 3)", "nullif(c_int, 1)", "try_cast(c_text as integer)",
    "try(c_int // 0)", "if(c_bool, c_int, c_double)", "c_text like 'a%' escape '!'", "c_text ilike 'A%'", "c_text similar to 'a.*'",
    "c_text glob 'a*'", "c_int between 0 and 1", "c_int in (1, 3)", "c_int not in (1, NULL)", "c_bool is not true",
    "case c_int when 1 then 'x' when 2 then 'y' end", "c_struct.a", "c_struct['b']", "c_map['a']", "c_ints[2]",
    "c_ints[1:2]", "c_ints[-2:]", "c_json->'a'->>0", "c_json->>'$.a[1]'", "extract(month from c_date)", "c_ts at time zone 'Asia/Tokyo'",
    "substring(c_text from 1 for 2)", "position('b' in c_text)", "trim(both 'a' from c_text)", "overlay(c_text placing 'x' from 1)",
    "c_int::varchar || c_text", "c_date + 1", "c_date - c_date", "c_ts - c_ts", "-c_int", "~c_int", "@c_int", "c_int ** 2", "5 % c_int",
    "c_int // 2", "c_int << 2", "c_int & 3", "not c_bool", "c_bool and c_int > 0 or c_text = 'x'", "c_int is distinct from c_big",
    "date_trunc('month', c_ts)", "interval (c_int) day", "[c_int, NULL]", "{'a': c_int, 'b': [c_text]}", "row(c_int, c_text)",
    "map {c_text: c_int}", "(c_int, c_text) = (1, 'day')", "[x * 2 for x in c_ints if x > 1]", "greatest(c_int, c_big, 0.5)",
    "c_enum < 'a'", "c_huge * 2", "c_uuid::varchar", "c_iv * 2", "c_timetz = c_timetz", "strftime(c_ts, '%Y-%m-%d')",
    "c_text[1]", "columns(c_int)", "typeof(c_dec)", "c_blob || c_blob", "c_bit & c_bit", "c_double::decimal(5,1)", "c_float::double",
    "array_value(1, c_int)", "c_arr[2]", "list_zip(c_ints, c_texts)", "regexp_replace(c_text, '([a-z])', '<\\1>', 'g')",
    "list_sort(c_ints, 'DESC', 'NULLS FIRST')", "string_split(c_text, ' ')", "format('{} {:d}', c_text, c_int)", "printf('%s-%d', c_text, c_int)",
]  # fmt: skip
