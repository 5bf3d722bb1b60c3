"""Functions of lists, structs, maps, JSON and text that DuckDB alone has, or has alone this way."""

from __future__ import annotations

from collections.abc import Callable

from tests.sql.fuzz.kinds import STRUCT

Some = Callable[[str], str]  # an expression of a kind


def numbers(some: Some) -> list[str]:
    items, texts, json = some("INTEGER[]"), some("VARCHAR[]"), some("JSON")
    text, day, number = some("VARCHAR"), some("DATE"), some("INTEGER")
    return [
        f"list_position({items}, {number})", f"list_max({items})", f"list_aggregate({items}, 'min')",
        f"len(list_distinct({items}))", f"array_length({texts})", f"list_count({items})", f"list_unique({items})",
        f"json_array_length({json})", f"len(json_keys({json}))", f"TRY_CAST(json_extract_string({json}, '$.a') AS INTEGER)",
        f"MAP {{'a': {number}, 'b': 2}}['a']", f"cardinality(MAP {{coalesce({number}, 0): 1}})", f"len({texts} || ['q'])",
        f"strlen({text})", f"levenshtein({text}, 'ab')", f"ascii({text})", f"bit_count({number})",
        f"date_diff('day', {day}, DATE '2024-03-01')", f"datepart('week', {day})", f"xor({number}, 3)",
        f"list_reduce(list_prepend(0, [v for v in {items} if v IS NOT NULL]), lambda a, b: a + b)",
        f"struct_extract({some(STRUCT)}, 'p')", f"struct_pack(a := {number}, b := {text}).a", "list_dot_product([1, 2], [3, 4])",
    ]  # fmt: skip


def texts(some: Some) -> list[str]:
    items, json, text, number = some("INTEGER[]"), some("JSON"), some("VARCHAR"), some("INTEGER")
    return [
        f"json_extract_string({json}, '$.b[0]')", f"json_type({json})", f"CAST({json} AS VARCHAR)",
        f"CAST(json_object('x', {number}, 'y', {text}) AS VARCHAR)", f"CAST({items} AS VARCHAR)", f"CAST({some(STRUCT)} AS VARCHAR)",
        f"list_aggregate({some('VARCHAR[]')}, 'string_agg', '+')", f"array_to_string(list_sort({some('VARCHAR[]')}), '')",
        f"regexp_extract({text}, '([a-z])(.?)', 2)", f"lpad({text}, 3, '*')", f"printf('%d|%s', {number}, {text})",
        f"string_split({text}, 'a')[1]", f"CAST(MAP {{'k': {number}}} AS VARCHAR)", f"translate({text}, 'ab', 'xy')",
        f"CAST(map_keys(MAP {{coalesce({text}, ''): 1}}) AS VARCHAR)", f"CAST(to_json({items}) AS VARCHAR)", f"dayname({some('DATE')})",
        f"CAST(json_merge_patch({json}, '{{\"z\": 1}}') AS VARCHAR)", f"hex({text})", f"CAST(row({number}, {text}) AS VARCHAR)",
        f"CAST(struct_insert({some(STRUCT)}, r := {number}) AS VARCHAR)", f"nullif(bar({number}, 0, 5, 5), '')",
        f"CASE WHEN starts_with({text}, 'a') THEN suffix({text}, 'b')::VARCHAR ELSE {text} END",
    ]  # fmt: skip


def lists(some: Some) -> list[str]:
    a, b, number = some("INTEGER[]"), some("INTEGER[]"), some("INTEGER")
    return [
        f"list_append({a}, {number})", f"list_prepend({number}, {a})", f"list_sort(list_distinct({a}))", f"flatten([{a}, {b}])",
        f"list_slice({a}, 1, 2)", f"list_intersect({a}, {a})[1:1]", f"[v * 2 for v in {a} if v > 0]", f"list_reverse_sort({a})",
        f"list_resize({a}, 2, {number})", f"range({number} % 3)", f"generate_series(1, {number} % 4)", f"list_where({a}, [true, false])",
        f"list_select({a}, [1])", f"list_grade_up({a})", f"list_transform(list_zip({a}, {b}), lambda p: p[1])",
        f"CAST(json_extract(to_json({a}), '$') AS INTEGER[])", f"list_value({number}, {number})",
    ]  # fmt: skip


def conditions(some: Some) -> list[str]:
    items, text, json = some("INTEGER[]"), some("VARCHAR"), some("JSON")
    return [
        f"list_has_any({items}, [1, 2])", f"list_has_all({items}, [1])", f"({some('INTEGER')} = ANY ({items}))",
        f"json_exists({json}, '$.a')", f"json_contains({json}, '1')", f"contains({text}, 'a')", f"({text} SIMILAR TO '[ab]+')",
        f"({text} GLOB 'a*')", f"isfinite({some('DATE')})", f"({some(STRUCT)} IS NOT NULL AND ({some(STRUCT)}).p > 0)",
        f"(len(list_filter({items}, lambda v: v > {some('INTEGER')})) > 0)", f"map_contains(MAP {{coalesce({text}, ''): 1}}, 'a')",
    ]  # fmt: skip
