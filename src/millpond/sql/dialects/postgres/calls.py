"""Rewrites calls of functions whose meaning depends on how they are written or where they stand.

DuckDB's parser gives one name to different things: `x ~ y` is `regexp_matches(x, y)` and `EXTRACT` is
`date_part`; the text at the place of the call says which one it was.
"""

from __future__ import annotations

from millpond.kernels.postgres.number_formats import number_format
from millpond.kernels.postgres.time_fields import FIELDS, WHOLE
from millpond.kernels.postgres.zone_names import abbreviated
from millpond.sql.dialects.parse_tree import Tree
from millpond.sql.dialects.postgres.aggregates import aggregated
from millpond.sql.dialects.postgres.input_casts import rewritten_cast
from millpond.sql.dialects.postgres.set_functions import in_from, in_select, is_set
from millpond.sql.dialects.postgres.tree_parts import become, builtin, called, expression
from millpond.sql.dialects.postgres.unknown_literals import is_array, is_jsonb, may_be_key
from millpond.sql.dialects.postgres.variadic import pack
from millpond.sql.refusal import pointing

_IN_FROM = "is_in_from"
_NOW = ("transaction_timestamp", "statement_timestamp")
_REFUSED = {
    "clock_timestamp": "use now()",
    "timeofday": "use to_char(now(), …)",
    "to_ascii": "texts are UTF-8; normalize(x, NFKD) separates letters from their marks",
    "json_populate_record": "select the fields with ->> and cast them",
    "jsonb_populate_record": "select the fields with ->> and cast them",
    "json_populate_recordset": "use json_array_elements, ->> and casts",
    "jsonb_populate_recordset": "use jsonb_array_elements, ->> and casts",
    "to_tsvector": "use regular expressions, or LIKE",
    "to_tsquery": "use regular expressions, or LIKE",
    "nextval": "use an identity column",
    "currval": "use an identity column",
    "setval": "use an identity column",
    "lastval": "use an identity column, and RETURNING",
    "set_config": "settings are arguments of millpond.open",
}
_REFUSED_FAMILIES = ("pg_advisory", "pg_try_advisory", "lo_", "txid_", "xml", "inet_")
_LIKES = {
    "~~": "like_escape",
    "!~~": "not_like_escape",
    "~~*": "ilike_escape",
    "!~~*": "not_ilike_escape",
}
_SYNTAX = ("regexp_matches", "regexp_full_match", "date_part")


def rewritten_call(node: Tree, text: bytes) -> bool:
    """Change a node in place; True if it is done and means what PostgreSQL says."""
    if node.get("type") == "TABLE_FUNCTION":
        _read_literals(node["function"]["function_name"].lower(), node["function"])
        changed = _flattened(node["function"]) or in_from(node)
        if not changed:
            node["function"][_IN_FROM] = True  # its own turn comes next
        return changed
    if node.get("class") == "CAST":
        return rewritten_cast(node)
    if node.get("class") not in ("FUNCTION", "WINDOW") or len(node["qualified_name"]["path"]) != 1:
        return False
    name = node["function_name"].lower()
    if name in _LIKES:
        return _escaped(name, node)
    if aggregated(name, node):
        return True
    if name in ("lag", "lead") and len(node["arguments"]) == 3:
        _with_common_type(node["arguments"])
    _read_literals(name, node)
    if node["class"] == "WINDOW" or node.pop(_IN_FROM, False):
        return False
    if name in _SYNTAX and not _is_written(name, node, text):
        return _syntax(name, node)
    if is_set(name):
        in_select(name, node)
        return True
    if name in _NOW and not node["arguments"]:
        become(node, expression("now()"))
        return True
    if name == "timezone" and len(node["arguments"]) == 2:
        _fix_abbreviation(node["arguments"][0])
    if name == "array_fill" and _filled(node):
        return True
    _flattened(node)
    if name == "age" and len(node["arguments"]) == 1:
        midnight = called("timestamp_in", expression("current_date"))
        today = {**node["arguments"][0], "expression": midnight}
        node["arguments"].insert(0, today)
    if name in _REFUSED or name.startswith(_REFUSED_FAMILIES):
        at = (node["query_location"], node["query_location_length"])
        hint = _REFUSED.get(name, "docs/functions.md lists the functions that exist")
        raise pointing(f"{name}() of PostgreSQL is not supported", text.decode(), at, hint)
    if name == "to_number" and len(node["arguments"]) == 2:
        return _to_number(node)
    if name == "-" and len(node["arguments"]) == 2:
        return _without(node)
    if name in ("normalize", "is_normalized") and len(node["arguments"]) == 2:
        form = node["arguments"][1]
        if form["expression"].get("class") == "COLUMN_REF":  # normalize(x, NFC)
            form["expression"] = expression(f"'{form['expression']['column_names'][-1]}'")
    pack(name, node)
    return False


def _fix_abbreviation(argument: Tree) -> None:
    """Replace an abbreviation of a time zone by what it stands for: PST has the same offset all year."""
    literal = argument["expression"].get("literal") or {}
    if literal.get("kind") != "STRING":
        return
    zone = abbreviated(literal["text"].lower())
    if isinstance(zone, str):
        literal["text"] = zone
    elif zone is not None and zone % 3600 == 0:
        literal["text"] = f"Etc/GMT{-zone // 3600:+d}" if zone else "UTC"
    elif zone is not None:
        argument["expression"] = expression(f"to_seconds({zone})")


def _filled(node: Tree) -> bool:
    """array_fill(x, ARRAY[2, 3]) as two calls, one for each dimension."""
    value, *shape = (argument["expression"] for argument in node["arguments"])
    lists = [one["children"] if is_array(one) else [] for one in shape]
    if not lists or len({len(one) for one in lists}) != 1 or len(lists[0]) < 2:
        return False
    made = value
    for sizes in reversed(list(zip(*lists, strict=True))):
        made = called("array_fill", made, *({**expression("ARRAY[x]"), "children": [one]} for one in sizes))
    become(node, made)
    return True


def _flattened(node: Tree) -> bool:
    """Let unnest give all elements of an array of arrays; was this one?"""
    name, given = node["function_name"].lower(), node["arguments"]
    if name != "unnest" or len(given) != 1 or not _is_nested(given[0]["expression"]):
        return False
    given[0]["expression"] = builtin("system.main.flatten", given[0]["expression"])
    return True


def _is_nested(node: Tree) -> bool:
    """Is this an array of arrays by what is written: ARRAY[[1], [2]]?"""
    return is_array(node) and any(
        is_array(one) or one.get("function_name") == "list_value" for one in node["children"]
    )


def _with_common_type(arguments: list[Tree]) -> None:
    """Give the value of lag and lead the type that it has in common with the default."""
    value, default = arguments[0], arguments[2]["expression"]
    kind = (default.get("literal") or {}).get("kind")
    if kind not in ("INTEGER", "STRING", "NULL_LITERAL"):
        made = expression("CASE WHEN true THEN a ELSE b END")
        made["case_checks"][0]["then_expr"], made["else_expr"] = value["expression"], {**default}
        value["expression"] = made


_OF_BYTES = ("encode", "get_bit", "get_byte", "set_bit", "set_byte", "sha224", "sha256", "sha384", "sha512")
_DOCUMENTS = {"jsonb_set": (0, 2), "jsonb_set_lax": (0, 2), "jsonb_insert": (0, 2)}  # which are jsonb
_NO_DOCUMENT = ("jsonb_build_object", "jsonb_build_array", "jsonb_object", "jsonb_agg", "jsonb_object_agg")


def _read_literals(name: str, node: Tree) -> None:
    """Read literals in quotes as the type that the function takes."""
    places: tuple[int, ...] = (0,)
    if name in _OF_BYTES:
        reader = "bytea_in"
    elif name.startswith("jsonb_") and name not in _NO_DOCUMENT:
        places, reader = _DOCUMENTS.get(name, (0,)), "jsonb_in"
    else:
        return
    for place in places:
        if place < len(node["arguments"]) and not node["arguments"][place]["name"]:
            given = node["arguments"][place]
            if (given["expression"].get("literal") or {}).get("kind") == "STRING":
                given["expression"] = called(reader, given["expression"])


def _escaped(name: str, node: Tree) -> bool:
    """In a pattern of LIKE without ESCAPE, a backslash escapes; in DuckDB nothing does."""
    text, pattern = (a["expression"] for a in node["arguments"])
    literal = pattern.get("literal") if pattern.get("class") == "CONSTANT" else None
    if literal is not None and "\\" not in str(literal.get("text", "")):
        return False
    escape = expression("'\\'")
    become(node, builtin(_LIKES[name], text, pattern, escape))
    return True


def _without(node: Tree) -> bool:
    """`-` of a jsonb: its keys, or elements, but for some."""
    left, right = (a["expression"] for a in node["arguments"])
    if is_jsonb(left) or is_array(right):
        become(node, called("jsonb_delete", left, right))
        return True
    if may_be_key(left, right):
        become(node, called("without_key", left, right))
        return True
    return False


def _to_number(node: Tree) -> bool:
    """Its result has as many places as the format, if that is written here."""
    text, pattern = (a["expression"] for a in node["arguments"])
    places = 9
    if pattern.get("class") == "CONSTANT" and (literal := pattern.get("literal")):
        form = number_format(literal["text"])
        places = min(form.after + form.scaled, 30)
    cast = expression(f"CAST(x AS DECIMAL(38, {places}))")
    cast["child"] = called("to_number", text, pattern)
    become(node, cast)
    return True


def _is_written(name: str, node: Tree, text: bytes) -> bool:
    """Does the text name the function at this place?"""
    at = node["query_location"]
    return text[at : at + len(name)].lower() == name.encode()


def _syntax(name: str, node: Tree) -> bool:
    arguments = [a["expression"] for a in node["arguments"]]
    if name == "regexp_matches":
        become(node, called("~" if len(arguments) == 2 else "~*", *arguments[:2]))
    elif name == "regexp_full_match":
        become(node, called("similar_to", *arguments))
    else:
        field = FIELDS.get((arguments[0].get("literal") or {}).get("text", "").lower())
        if field is not None:
            arguments[0]["literal"]["text"] = field
        own = field in ("julian", "epoch")
        kind = "extract_whole" if field in WHOLE else f"extract_{field}" if own else "extract"
        become(node, called(kind, *arguments))
    return True
