"""Functions of Spark whose call is rewritten: any number of arguments, lambdas, words as arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from sqlglot import exp

from millpond.kernels.duck import quoted
from millpond.kernels.spark.number_formats import number_format
from millpond.sql.binding.types import text_literal

if TYPE_CHECKING:
    from millpond.sql.dialects.spark.expressions import Expressions

Given = list[exp.Expr]
Handler = Callable[[Given, "Expressions"], "str | None"]
HANDLERS: dict[str, Handler] = {}
# Written as syntax, not as calls, or in a clause of their own.
SYNTAX = frozenset(
    [
        "!",
        "!=",
        "%",
        "&",
        "*",
        "+",
        "-",
        "/",
        "<",
        "<=",
        "<=>",
        "<>",
        "=",
        "==",
        ">",
        ">=",
        "<<",
        ">>",
        ">>>",
        "^",
        "|",
        "||",
        "~",
        "and",
        "or",
        "not",
        "between",
        "case",
        "when",
        "in",
        "cast",
        "explode",
        "explode_outer",
        "posexplode",
        "posexplode_outer",
        "inline",
        "inline_outer",
        "stack",
        "json_tuple",
        "range",
        "extract",
        "window",
        "session_window",
    ]
)
_CHANCE = "a view cannot depend on chance"
_WHO = "rows do not depend on who reads them"
_FILES = "sources have columns of their own for it: see docs/sql.md"
_VARIANT = "VARIANT is no type here: keep the text, and use get_json_object, from_json or json_tuple"
_TIME = "TIME is not enabled in Spark 4.3 by default: use a TIMESTAMP, or a text"
_XML = "XML is not read here: pond.function adds a function in Python"
_MESSAGES = "a source reads this format: FORMAT … ENCODE … of CREATE SOURCE"
_COLLATION = "texts are compared by their bytes (UTF8_BINARY): use lower() where case does not count"
_JAVA = "pond.function adds a function in Python"
INSTEAD = {
    **dict.fromkeys(("rand", "randn", "random", "randstr", "uniform", "uuid", "shuffle"), _CHANCE),
    **dict.fromkeys(("current_user", "session_user", "user", "version", "current_path"), _WHO),
    **dict.fromkeys(("input_file_name", "input_file_block_start", "input_file_block_length"), _FILES),
    **dict.fromkeys(
        ("monotonically_increasing_id", "spark_partition_id"), "use row_number() OVER (ORDER BY …)"
    ),
    **dict.fromkeys(("parse_json", "try_parse_json", "to_variant_object"), _VARIANT),
    **dict.fromkeys(("time", "make_time", "to_time", "try_to_time", "current_time", "localtime"), _TIME),
    **dict.fromkeys(("from_xml", "to_xml", "schema_of_xml"), _XML),
    **dict.fromkeys(("collate", "collation", "collations"), _COLLATION),
    **dict.fromkeys(("java_method", "reflect", "try_reflect"), _JAVA),
    **dict.fromkeys(("aes_encrypt", "aes_decrypt", "try_aes_decrypt"), _JAVA),
    "is_valid_variant": _VARIANT,
    **dict.fromkeys(
        ("timestamp_nanos", "unix_nanos"), "times have microseconds: use timestamp_micros or unix_micros"
    ),
    "measure": "metric views are Spark's: a materialized view keeps an aggregate up to date",
    "python_worker_logs": "pond.errors() lists the rows that failed, with their reasons",
    "histogram_numeric": "group by width_bucket(…), and count",
    "counter_diff": "subtract lag(…) OVER (…)",
    "count_min_sketch": "count(*) of each value is exact here",
    "sentences": "use split()",
    "sql_keywords": "any word in quotes `…` can be a name",
}
_INSTEAD_BY_PART = {  # for names that begin with this, or have it inside
    "variant": _VARIANT,
    "time_": _TIME,
    "xpath": _XML,
    "_avro": _MESSAGES,
    "_protobuf": _MESSAGES,
    "st_": "pond.function adds functions of places in Python",
    "kll_": "percentile_approx is exact here",
    "approx_top_k": "count, order and limit: a top-n view keeps no more",
    "hll_": "count(DISTINCT …) and approx_count_distinct are exact here",
    "theta_": "count(DISTINCT …) is exact here",
    "tuple_": "group by the key, and sum or count",
}


def instead_of(name: str) -> str | None:
    """What a message advises for a function that is not here."""
    if name in INSTEAD:
        return INSTEAD[name]
    return next((said for part, said in _INSTEAD_BY_PART.items() if part in name), None)


def handler(*names: str) -> Callable[[Handler], Handler]:
    def define(code: Handler) -> Handler:
        HANDLERS.update(dict.fromkeys(names, code))
        return code

    return define


# -- any number of arguments ------------------------------------------------------------------


@handler("concat")
def _concat(given: Given, writer: Expressions) -> str | None:
    if not given:
        return "''"
    if any(isinstance(one, exp.Null) for one in given):
        known = [one for one in given if not isinstance(one, exp.Null)]
        return f"CASE WHEN false THEN {_concat(known, writer)} END"  # a NULL of the type
    made = writer.text(given[0])
    if len(given) == 1:
        return made
    for one in given[1:]:
        made = f"__spark.concat({made}, {writer.text(one)})"
    return made


@handler("concat_ws")
def _concat_ws(given: Given, writer: Expressions) -> str | None:
    if not given:
        return None
    if len(given) == 1:
        return f"CASE WHEN {writer.text(given[0])} IS NOT NULL THEN '' END"
    parts = [f"__spark.texts({writer.text(one)})" for one in given[1:]]
    between = writer.text(given[0])
    return f'"spark.join.1"({" || ".join(parts)}, {between})'


@handler("array")
def _array(given: Given, writer: Expressions) -> str:
    return f"[{', '.join(writer.operand(g) for g in given)}]"


@handler("map")
def _map(given: Given, writer: Expressions) -> str | None:
    if len(given) % 2:
        return None
    if not given:
        return "MAP {}"
    keys, values = writer.texts(given[::2]), writer.texts(given[1::2])
    return f"__spark.map_of([{keys}], [{values}])"


@handler("named_struct")
def _named_struct(given: Given, writer: Expressions) -> str | None:
    names = given[::2]
    if len(given) % 2 or not given or not all(isinstance(n, exp.Literal) and n.is_string for n in names):
        return None
    parts = zip(names, given[1::2], strict=True)
    return f"struct_pack({', '.join(f'{quoted(n.name)} := {writer.operand(v)}' for n, v in parts)})"


@handler("struct")
def _struct(given: Given, writer: Expressions) -> str | None:
    parts = []
    for number, one in enumerate(given, 1):
        if isinstance(one, exp.Alias):
            parts.append(f"{quoted(one.alias)} := {writer.operand(one.this)}")
        elif isinstance(one, exp.Column | exp.Dot) and not isinstance(one.this, exp.Star):
            parts.append(f"{quoted(one.name)} := {writer.text(one)}")
        elif isinstance(one, exp.Star):
            return None
        else:
            parts.append(f"{quoted(f'col{number}')} := {writer.operand(one)}")
    return f"struct_pack({', '.join(parts)})" if parts else None


def _same(name: str, least: int) -> Handler:
    def code(given: Given, writer: Expressions) -> str | None:
        return f"{name}({writer.texts(given)})" if len(given) >= least else None

    return code


HANDLERS["greatest"] = _same("greatest", 2)
HANDLERS["least"] = _same("least", 2)


@handler("elt")
def _elt(given: Given, writer: Expressions) -> str | None:
    if len(given) < 2:
        return None
    listed = ", ".join(f"__spark.cast_string({writer.text(g)})" for g in given[1:])
    return f"__spark.elt({writer.text(given[0])}, [{listed}])"


@handler("format_string", "printf")
def _format_string(given: Given, writer: Expressions) -> str | None:
    if not given:
        return None
    listed = ", ".join(f"__spark.format_argument({writer.operand(g)})" for g in given[1:])
    return f'"spark.format_string.1"({writer.text(given[0])}, [{listed}]::varchar[])'


@handler("decode")
def _decode(given: Given, writer: Expressions) -> str | None:
    if len(given) == 2:
        return f"__spark.decode_charset({writer.texts(given)})"
    value, rest = writer.text(given[0]), given[1:]
    checks = "".join(
        f" WHEN {value} IS NOT DISTINCT FROM {writer.text(a)} THEN {writer.text(b)}"
        for a, b in zip(rest[::2], rest[1::2], strict=False)
    )
    other = f" ELSE {writer.text(rest[-1])}" if len(rest) % 2 else ""
    return f"CASE{checks}{other} END" if checks else None


@handler("nvl2")
def _nvl2(given: Given, writer: Expressions) -> str | None:
    if len(given) != 3:
        return None
    a, b, c = (writer.text(g) for g in given)
    return f"CASE WHEN {a} IS NOT NULL THEN {b} ELSE {c} END"


@handler("if")
def _if(given: Given, writer: Expressions) -> str | None:
    if len(given) != 3:
        return None
    a, b, c = (writer.text(g) for g in given)
    return f"CASE WHEN {a} THEN {b} ELSE {c} END"


@handler("map_concat")
def _map_concat(given: Given, writer: Expressions) -> str | None:
    if not given:
        return "MAP {}"
    entries = " || ".join(f"map_entries({writer.text(g)})" for g in given)
    return f"__spark.map_from_entries({entries})"


@handler("arrays_zip")
def _arrays_zip(given: Given, writer: Expressions) -> str | None:
    if not given:
        return None
    names = [one.name if isinstance(one, exp.Column) else str(n) for n, one in enumerate(given)]
    parts = ", ".join(f"{quoted(n)} := e[{k}]" for k, n in enumerate(names, 1))
    made = f"list_transform(list_zip({writer.texts(given)}), lambda e: struct_pack({parts}))"
    return f"CASE WHEN {_known(given, writer)} THEN {made} END"


@handler("try_divide")
def _try_divide(given: Given, writer: Expressions) -> str | None:
    return writer.quotient(given[0], given[1], lenient=True) if len(given) == 2 else None


def _hash(name: str) -> Handler:
    def code(given: Given, writer: Expressions) -> str | None:
        listed = " || ".join(f"__spark.hash_parts({writer.term(g)})" for g in given)
        return f'"spark.{name}.1"(({listed})::varchar[])' if given else None

    return code


HANDLERS["hash"] = _hash("hash")
HANDLERS["xxhash64"] = _hash("xxhash64")


def _to_number(strict: bool) -> Handler:
    """The format is a constant, which says how many digits the DECIMAL has."""

    def code(given: Given, writer: Expressions) -> str | None:
        if len(given) != 2 or not isinstance(given[1], exp.Literal) or not given[1].is_string:
            return None
        form = number_format(given[1].name)
        if form is None:
            return None
        width, scale = form.digits
        said = "true" if strict else "false"
        text = f"__spark.cast_string({writer.text(given[0])})"
        made = f'"spark.to_number.1"({text}, {writer.text(given[1])}, {said})'
        return f"{made}::decimal({width}, {scale})" if width <= 38 else None

    return code


HANDLERS["to_number"] = _to_number(True)
HANDLERS["try_to_number"] = _to_number(False)


@handler("instr")
def _instr(given: Given, writer: Expressions) -> str | None:
    if len(given) == 2:
        return f"__spark.instr({writer.texts(given)})"
    if len(given) not in (3, 4):
        return None
    places = [writer.operand(g) for g in given[2:]]
    return f"__spark.instr_from({writer.texts(given[:2])}, {', '.join([*places, '1'][:2])})"


@handler("map_zip_with")
def _map_zip_with(given: Given, writer: Expressions) -> str | None:
    code = _lambda(given[2], 3) if len(given) == 3 else None
    if code is None:
        return None
    a, b = writer.text(given[0]), writer.text(given[1])
    held = _applied(code, ("p", f"({a})[p]", f"({b})[p]"), writer)
    others = f"list_filter(map_keys({b}), lambda k: not list_contains(map_keys({a}), k))"
    keys = f"list_concat(map_keys({a}), {others})"
    made = f"map_from_entries(list_transform({keys}, lambda p: struct_pack(k := p, v := {held})))"
    return f"CASE WHEN {_known(given[:2], writer)} THEN {made} END"


@handler("like")
def _like(given: Given, writer: Expressions) -> str | None:
    return writer.text(exp.Like(this=given[0], expression=given[1])) if len(given) == 2 else None


@handler("ilike")
def _ilike(given: Given, writer: Expressions) -> str | None:
    return writer.text(exp.ILike(this=given[0], expression=given[1])) if len(given) == 2 else None


# -- lambdas ----------------------------------------------------------------------------------


def _lambda(node: exp.Expr, count: int) -> exp.Lambda | None:
    return node if isinstance(node, exp.Lambda) and len(node.expressions) == count else None


@handler("transform")
def _transform(given: Given, writer: Expressions) -> str | None:
    if len(given) != 2 or not isinstance(given[1], exp.Lambda):
        return None
    if len(given[1].expressions) == 1:
        return f"list_transform({writer.text(given[0])}, {writer.text(given[1])})"
    return _indexed("list_transform", given, writer)


@handler("filter")
def _filter(given: Given, writer: Expressions) -> str | None:
    if len(given) != 2 or not isinstance(given[1], exp.Lambda):
        return None
    if len(given[1].expressions) == 1:
        return f"list_filter({writer.text(given[0])}, {writer.text(given[1])})"
    return _indexed("list_filter", given, writer)


def _indexed(name: str, given: Given, writer: Expressions) -> str | None:
    """A lambda with the place of the element, which Spark counts from 0."""
    code = _lambda(given[1], 2)
    if code is None:
        return None
    value, place = (one.name for one in code.expressions)
    body = code.this.transform(
        lambda n: (
            exp.Paren(this=exp.Sub(this=n.copy(), expression=exp.Literal.number(1)))
            if isinstance(n, exp.Identifier) and n.name.lower() == place.lower()
            else n
        )
    )
    return f"{name}({writer.text(given[0])}, lambda {quoted(value)}, {quoted(place)}: {writer.text(body)})"


@handler("exists")
def _exists(given: Given, writer: Expressions) -> str | None:
    return _every("any", given, writer)


@handler("forall")
def _forall(given: Given, writer: Expressions) -> str | None:
    return _every("all", given, writer)


def _every(which: str, given: Given, writer: Expressions) -> str | None:
    if len(given) != 2 or _lambda(given[1], 1) is None:
        return None
    return f"__spark.{which}_of(list_transform({writer.text(given[0])}, {writer.text(given[1])}))"


@handler("aggregate", "reduce")
def _aggregate(given: Given, writer: Expressions) -> str | None:
    if len(given) not in (3, 4) or _lambda(given[2], 2) is None:
        return None
    made = f"list_reduce({writer.text(given[0])}, {writer.text(given[2])}, {writer.operand(given[1])})"
    if len(given) == 3:
        return made
    finish = _lambda(given[3], 1)
    return None if finish is None else f"list_transform([{made}], {writer.text(finish)})[1]"


@handler("zip_with")
def _zip_with(given: Given, writer: Expressions) -> str | None:
    code = _lambda(given[2], 2) if len(given) == 3 else None
    if code is None:
        return None
    made = _over_pairs(code, ("p[1]", "p[2]"), f"list_zip({writer.texts(given[:2])})", writer)
    return f"CASE WHEN {_known(given[:2], writer)} THEN {made} END"


def _known(given: Given, writer: Expressions) -> str:
    return " AND ".join(f"{writer.text(one)} IS NOT NULL" for one in given)


def _over_pairs(code: exp.Lambda, parts: tuple[str, ...], pairs: str, writer: Expressions) -> str:
    return f"list_transform({pairs}, lambda p: {_applied(code, parts, writer)})"


def _applied(code: exp.Lambda, parts: tuple[str, ...], writer: Expressions) -> str:
    """The body of a lambda over other texts, by way of a lambda per parameter."""
    made = writer.text(code.this)
    for one, part in reversed(list(zip(code.expressions, parts, strict=True))):
        made = f"list_transform([{part}], lambda {quoted(one.name)}: {made})[1]"
    return made


@handler("map_filter")
def _map_filter(given: Given, writer: Expressions) -> str | None:
    code = _lambda(given[1], 2) if len(given) == 2 else None
    if code is None:
        return None
    kept = _applied(code, ("p.key", "p.value"), writer)
    return f"map_from_entries(list_filter(map_entries({writer.text(given[0])}), lambda p: {kept}))"


@handler("transform_keys")
def _transform_keys(given: Given, writer: Expressions) -> str | None:
    code = _lambda(given[1], 2) if len(given) == 2 else None
    if code is None:
        return None
    key = _applied(code, ("p.key", "p.value"), writer)
    pair = f"struct_pack(k := {key}, v := p.value)"
    entries = f"list_transform(map_entries({writer.text(given[0])}), lambda p: {pair})"
    return f"__spark.map_from_entries({entries})"


@handler("transform_values")
def _transform_values(given: Given, writer: Expressions) -> str | None:
    code = _lambda(given[1], 2) if len(given) == 2 else None
    if code is None:
        return None
    held = _applied(code, ("p.key", "p.value"), writer)
    pair = f"struct_pack(k := p.key, v := {held})"
    entries = f"list_transform(map_entries({writer.text(given[0])}), lambda p: {pair})"
    return f"map_from_entries({entries})"


# -- words as arguments -----------------------------------------------------------------------


def _word(node: exp.Expr) -> str | None:
    return (
        node.name.lower() if isinstance(node, exp.Column | exp.Literal | exp.Var | exp.Identifier) else None
    )


@handler("dateadd", "date_add")
def _date_add(given: Given, writer: Expressions) -> str | None:
    if len(given) == 2:
        return f"__spark.date_add({writer.text(given[0])}, {writer.operand(given[1])})"
    return _timestamp_add(given, writer)


@handler("timestampadd")
def _timestamp_add(given: Given, writer: Expressions) -> str | None:
    word = _word(given[0]) if len(given) == 3 else None
    if word not in _ADDED:
        return None
    return f"__spark.timestamp_add({text_literal(word)}, {writer.operand(given[1])}, {writer.text(given[2])})"


@handler("datediff", "date_diff")
def _date_diff(given: Given, writer: Expressions) -> str | None:
    if len(given) == 2:
        return f"__spark.date_diff({writer.texts(given)})"
    return _timestamp_diff(given, writer)


@handler("timestampdiff")
def _timestamp_diff(given: Given, writer: Expressions) -> str | None:
    word = _word(given[0]) if len(given) == 3 else None
    if word not in _ADDED:
        return None
    start, end = (f"__spark.as_ntz({writer.text(one)})" for one in given[1:])
    return f'"spark.timestamp_diff.1"({text_literal(word)}, {start}, {end})'


_ADDED = ("year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond", "microsecond")


@handler("position", "locate")
def _locate(given: Given, writer: Expressions) -> str | None:
    if len(given) not in (2, 3):
        return None
    return f"__spark.locate({', '.join([*map(writer.text, given), '1'][:3])})"


@handler("current_timestamp", "now")
def _now(given: Given, writer: Expressions) -> str | None:
    return "now()" if not given else None


@handler("localtimestamp")
def _local(given: Given, writer: Expressions) -> str | None:
    return "now()::timestamp" if not given else None


@handler("current_date", "curdate")
def _today(given: Given, writer: Expressions) -> str | None:
    return "now()::timestamp::date" if not given else None


@handler("current_timezone")
def _zone(given: Given, writer: Expressions) -> str | None:
    return "'UTC'"


def _cast_call(kind: str) -> Handler:
    def code(given: Given, writer: Expressions) -> str | None:
        if len(given) != 1:
            return None
        return writer.cast(
            writer.operand(given[0]), exp.DataType.build(kind, dialect="spark"), given[0], lenient=False
        )

    return code


for _kind in (
    "tinyint",
    "smallint",
    "int",
    "bigint",
    "float",
    "double",
    "boolean",
    "string",
    "binary",
    "date",
    "timestamp",
    "decimal",
):
    HANDLERS[_kind] = _cast_call(_kind)


@handler("array_sort")
def _array_sort(given: Given, writer: Expressions) -> str | None:
    if len(given) == 2:
        return _sorted_by(given, writer)
    return f"list_sort({writer.text(given[0])}, 'ASC', 'NULLS LAST')" if len(given) == 1 else None


def _sorted_by(given: Given, writer: Expressions) -> str | None:
    """The place of an element is the number of those that the comparison says are before it."""
    code = _lambda(given[1], 2)
    if code is None:
        return None
    listed = writer.text(given[0])
    compared = (
        f"coalesce({_applied(code, ('o', 'e'), writer)}, error('the comparison in array_sort is NULL'))"
    )
    before = f"list_filter(l, lambda o, j: {compared} < 0 OR ({compared} = 0 AND j < i))"
    placed = f"list_transform(l, lambda e, i: struct_pack(r := len({before}), v := e))"
    return f"list_transform([{listed}], lambda l: list_transform(list_sort({placed}), lambda p: p.v))[1]"


@handler("array_distinct")
def _array_distinct(given: Given, writer: Expressions) -> str | None:
    return f"__spark.array_distinct({writer.texts(given)})" if len(given) == 1 else None


def _trimmed(side: str, characters_first: bool) -> Handler:
    def code(given: Given, writer: Expressions) -> str | None:
        if len(given) == 1:
            return f"{side}(__spark.cast_string({writer.text(given[0])}))"
        if len(given) != 2:
            return None
        of, characters = reversed(given) if characters_first else given
        return (
            f"{side}(__spark.cast_string({writer.text(of)}), __spark.cast_string({writer.text(characters)}))"
        )

    return code


HANDLERS.update(
    trim=_trimmed("trim", True),
    btrim=_trimmed("trim", False),
    ltrim=_trimmed("ltrim", True),
    rtrim=_trimmed("rtrim", True),
)
