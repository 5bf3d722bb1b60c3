"""What a client can learn about the server: GetSqlInfo and the SQL types."""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa

from millpond.version import __version__

_LIST = pa.list_(pa.field("string_data", pa.string()))
_MAP = pa.map_(pa.int32(), pa.list_(pa.field("$data$", pa.int32())))
_VALUE = pa.dense_union(
    [
        pa.field("string_value", pa.string()),
        pa.field("bool_value", pa.bool_()),
        pa.field("bigint_value", pa.int64()),
        pa.field("int32_bitmask", pa.int32()),
        pa.field("string_list", _LIST),
        pa.field("int32_to_int32_list_map", _MAP),
    ]
)
SQL_INFO_SCHEMA = pa.schema([pa.field("info_name", pa.uint32(), False), pa.field("value", _VALUE, False)])
_STRING, _BOOL, _BIGINT, _INT32 = range(4)

SQL_INFO: dict[int, tuple[int, str | bool | int]] = {  # by number: the member of the union, and the value
    0: (_STRING, "Millpond"),
    1: (_STRING, __version__),
    2: (_STRING, pa.__version__),
    3: (_BOOL, False),  # read only
    4: (_BOOL, True),  # SQL
    5: (_BOOL, False),  # Substrait
    8: (_INT32, 0),  # transactions: none
    9: (_BOOL, False),  # the action CancelQuery
    10: (_BOOL, True),  # bulk ingestion
    11: (_BOOL, False),  # ingestion in a transaction
    100: (_INT32, 0),
    101: (_INT32, 0),
    500: (_BOOL, False),  # CREATE CATALOG
    501: (_BOOL, False),  # CREATE SCHEMA
    502: (_BOOL, True),  # CREATE TABLE
    503: (_BIGINT, 1),  # identifiers are case-insensitive
    504: (_STRING, '"'),
    505: (_BIGINT, 1),
    506: (_BOOL, True),
    507: (_BIGINT, 3),  # NULLs come last
    513: (_STRING, "\\"),
    515: (_BOOL, True),
    516: (_BOOL, True),
    518: (_BOOL, True),
    519: (_BOOL, False),
    520: (_BOOL, True),
    521: (_BOOL, True),
    523: (_BOOL, True),
    524: (_BOOL, True),
    529: (_STRING, "schema"),
    531: (_STRING, "pond"),
    532: (_BOOL, True),
}


def sql_info(asked: Collection[int]) -> pa.Table:
    """The rows of GetSqlInfo: those that were asked for, or all.

    >>> sql_info([0]).to_pylist()
    [{'info_name': 0, 'value': 'Millpond'}]
    """
    wanted = [number for number in SQL_INFO if not asked or number in asked]
    members = [SQL_INFO[number][0] for number in wanted]
    values = [
        [SQL_INFO[n][1] for n in wanted if SQL_INFO[n][0] == member] for member in range(_VALUE.num_fields)
    ]
    children = [pa.array(v, _VALUE.field(m).type) for m, v in enumerate(values)]
    offsets, seen = [], [0] * len(values)
    for member in members:
        offsets.append(seen[member])
        seen[member] += 1
    union = pa.UnionArray.from_dense(
        pa.array(members, pa.int8()),
        pa.array(offsets, pa.int32()),
        children,
        [_VALUE.field(m).name for m in range(_VALUE.num_fields)],
    )
    return pa.table([pa.array(wanted, pa.uint32()), union], schema=SQL_INFO_SCHEMA)


XDBC_SCHEMA = pa.schema(
    [
        pa.field("type_name", pa.string(), False),
        pa.field("data_type", pa.int32(), False),
        pa.field("column_size", pa.int32()),
        pa.field("literal_prefix", pa.string()),
        pa.field("literal_suffix", pa.string()),
        pa.field("create_params", pa.list_(pa.field("item", pa.string(), False))),
        pa.field("nullable", pa.int32(), False),
        pa.field("case_sensitive", pa.bool_(), False),
        pa.field("searchable", pa.int32(), False),
        pa.field("unsigned_attribute", pa.bool_()),
        pa.field("fixed_prec_scale", pa.bool_(), False),
        pa.field("auto_increment", pa.bool_()),
        pa.field("local_type_name", pa.string()),
        pa.field("minimum_scale", pa.int32()),
        pa.field("maximum_scale", pa.int32()),
        pa.field("sql_data_type", pa.int32(), False),
        pa.field("datetime_subcode", pa.int32()),
        pa.field("num_prec_radix", pa.int32()),
        pa.field("interval_precision", pa.int32()),
    ]
)
_TYPES = {  # the number in XDBC, the size, and what stands around a literal
    "BOOLEAN": (-7, 1, None),
    "SMALLINT": (5, 16, None),
    "INTEGER": (4, 32, None),
    "BIGINT": (-5, 64, None),
    "FLOAT": (7, 24, None),
    "DOUBLE": (8, 53, None),
    "DECIMAL": (3, 38, None),
    "VARCHAR": (12, None, "'"),
    "BLOB": (-3, None, "'"),
    "DATE": (91, 10, "'"),
    "TIME": (92, 15, "'"),
    "TIMESTAMP": (93, 26, "'"),
}


def xdbc_types(asked: int | None) -> pa.Table:
    """The rows of GetXdbcTypeInfo."""
    rows = [
        {
            "type_name": name,
            "data_type": number,
            "column_size": size,
            "literal_prefix": around,
            "literal_suffix": around,
            "nullable": 1,
            "case_sensitive": name == "VARCHAR",
            "searchable": 3,
            "unsigned_attribute": False,
            "fixed_prec_scale": False,
            "auto_increment": False,
            "local_type_name": name,
            "sql_data_type": number,
        }
        for name, (number, size, around) in sorted(_TYPES.items(), key=lambda t: t[1][0])
        if asked is None or asked == number
    ]
    return pa.Table.from_pylist(rows, schema=XDBC_SCHEMA)
