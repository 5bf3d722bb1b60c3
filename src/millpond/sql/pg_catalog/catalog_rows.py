"""The rows of the catalog's relations, from the tables, views and indexes of a pond.

Law: an object keeps its oid as long as it keeps its name, in every server of the pond.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from millpond.plan.objects import SEQUENCE_OF, UNIQUE_INDEX, SqlColumn, SqlObject
from millpond.sql.binding.catalog import Catalog
from millpond.sql.pg_catalog.pg_types import (
    BPCHAR,
    BY_OID,
    JSONB,
    TYPE_NAMES,
    TYPES,
    UNKNOWN,
    VARCHAR,
    ColumnType,
    column_type,
)
from millpond.sql.statements.comment import comments
from millpond.sql.text.schema_names import as_written, schema_of, without_schema

FIRST_OID = 16_384
PUBLIC, PG_CATALOG, INFORMATION_SCHEMA = 2200, 11, 13_183
OWNER = 10
HEAP, BTREE = 2, 403
KINDS = {"table": "r", "materialized view": "m", "view": "v", "source": "f", "late rows": "r"}
Row = dict[str, Any]


@dataclass
class CatalogRows:
    """The rows of each relation; columns that are not named are NULL."""

    schemas: Mapping[str, str] = field(default_factory=dict)
    rows: dict[str, list[Row]] = field(default_factory=dict)

    def place(self, name: str) -> tuple[str, str, int]:
        """The schema of a stored name, the name in it, and the number of the schema."""
        schema = schema_of(name, self.schemas)
        space = PUBLIC if schema is None else namespace_oid(schema)
        return schema or "public", self.local(name), space

    def local(self, name: str) -> str:
        return without_schema(name, self.schemas)

    def add(self, relation: str, **row: Any) -> None:
        self.rows.setdefault(relation, []).append(row)


def namespace_oid(schema: str) -> int:
    return FIRST_OID + zlib.crc32(f"schema {schema}".encode()) % (1 << 30)


def oids(names: list[str]) -> dict[str, int]:
    """A number for each name, the same at every call unless names collide.

    >>> oids(["t", "u"])["t"] == oids(["t"])["t"]
    True
    """
    numbers: dict[str, int] = {}
    taken: set[int] = set()
    for name in sorted(names):
        oid = FIRST_OID + zlib.crc32(name.encode()) % (1 << 30)
        while oid in taken:
            oid += 1
        taken.add(oid)
        numbers[name] = oid
    return numbers


def catalog_rows(
    catalog: Catalog, database: str, users: list[str], settings: Mapping[str, str]
) -> CatalogRows:
    """All rows that depend on the program of a pond."""
    made = CatalogRows(catalog.schemas)
    for name, value in settings.items():
        made.add("pg_settings", name=name, setting=value, vartype="string", context="user", source="default")
    _fixed(made, database, users)
    shown = [
        o for o in catalog.objects.values() if o.kind in KINDS and o.columns and SEQUENCE_OF not in o.options
    ]
    indexes = [o for o in catalog.objects.values() if o.kind == "index" and o.uses]
    keyed = {o.name: keys for o in shown if (keys := _key(catalog, o))}
    names = (
        [o.name for o in shown] + [i.name for i in indexes] + [_key_name(o) for o in shown if o.name in keyed]
    )
    numbers = oids(names)
    for named in shown:
        _relation(made, named, numbers, named.name in keyed or any(i.uses[0] == named.name for i in indexes))
    for named in shown:
        if named.name in keyed:
            _index(
                made, named, _key_name(named), keyed[named.name], numbers, named.kind == "table", unique=True
            )
    by_name = {o.name: o for o in shown}
    for index in indexes:
        base = by_name.get(index.uses[0])
        if base is not None and index.key:
            shown_names = {c.stored_name: c.name for c in base.columns}
            columns = [shown_names.get(k, k) for k in index.key]
            known = {c.name for c in base.columns}
            unique = any(rule.name == index.name and rule.unique for rule in base.constraints)
            listed = [c for c in columns if c in known]
            constrains = unique and UNIQUE_INDEX not in index.options
            _index(made, base, index.name, listed, numbers, False, unique=unique, constrains=constrains)
    return made


def _key(catalog: Catalog, named: SqlObject) -> list[str]:
    """The columns of a key that are shown."""
    if named.kind == "table":
        return list(named.key)
    if named.kind != "materialized view":
        return []
    spec = catalog.stored(named)
    shown_names = {c.stored_name: c.name for c in named.columns}
    if spec is None or spec.rule != "latest" or not spec.key or any(k not in shown_names for k in spec.key):
        return []
    return [shown_names[k] for k in spec.key]


def _key_name(named: SqlObject) -> str:
    return f"{named.name}_pkey" if named.kind == "table" else f"{named.name}_key"


def _fixed(made: CatalogRows, database: str, users: list[str]) -> None:
    for oid, name in (
        (PUBLIC, "public"),
        (PG_CATALOG, "pg_catalog"),
        (INFORMATION_SCHEMA, "information_schema"),
        *((namespace_oid(name), name) for name in made.schemas.values()),
    ):
        made.add("pg_namespace", oid=oid, nspname=name, nspowner=OWNER)
        made.add(
            "information_schema.schemata", catalog_name=database, schema_name=name, schema_owner=users[0]
        )
    made.add(
        "pg_database", oid=1, datname=database, datdba=OWNER, encoding=6, datlocprovider="c",
        datistemplate=False, datallowconn=True, datconnlimit=-1, datcollate="C", datctype="C",
        dattablespace=1663,
    )  # fmt: skip
    made.add("pg_tablespace", oid=1663, spcname="pg_default", spcowner=OWNER)
    for number, name in enumerate(users):
        facts = {
            "rolname": name, "rolsuper": number == 0, "rolinherit": True, "rolcreaterole": number == 0,
            "rolcreatedb": number == 0, "rolcanlogin": True, "rolreplication": False, "rolconnlimit": -1,
            "rolbypassrls": number == 0,
        }  # fmt: skip
        for relation in ("pg_roles", "pg_authid"):
            made.add(relation, oid=OWNER + number, **facts)
        made.add("pg_user", usename=name, usesysid=OWNER + number, usesuper=number == 0)


def _relation(
    made: CatalogRows,
    named: SqlObject,
    numbers: Mapping[str, int],
    indexed: bool,
) -> None:
    schema, local, space = made.place(named.name)
    oid, kind, stored = numbers[named.name], KINDS[named.kind], named.kind != "view"
    made.add(
        "pg_class", oid=oid, relname=local, relnamespace=space, reltype=0, reloftype=0, relowner=OWNER,
        relam=HEAP if kind in "rm" else 0, relfilenode=oid if stored else 0, reltablespace=0, relpages=0,
        reltuples=-1.0, relallvisible=0, reltoastrelid=0, relhasindex=indexed,
        relisshared=False, relpersistence="p", relkind=kind, relnatts=len(named.columns), relchecks=0,
        relhasrules=kind in "mv", relhastriggers=False, relhassubclass=False, relrowsecurity=False,
        relforcerowsecurity=False, relispopulated=True, relreplident="d", relispartition=False, relrewrite=0,
        relfrozenxid=0, relminmxid=0,
    )  # fmt: skip
    for number, column in enumerate(named.columns, 1):
        _column(made, named, oid, number, column)
    _comments(made, named, oid)
    _checks(made, named, oid)
    text = as_written(named.text or named.said, made.schemas)
    made.add("millpond_definitions", oid=oid, definition=f" {text.rstrip(';')};" if text else None)
    common = {"schemaname": schema, "definition": text}
    if named.kind == "view":
        made.add("pg_views", viewname=local, viewowner="millpond", **common)
        made.add("information_schema.views", table_catalog="pond", table_schema=schema,
                 table_name=local, view_definition=text, check_option="NONE", is_updatable="NO",
                 is_insertable_into="NO")  # fmt: skip
    elif named.kind == "materialized view":
        made.add("pg_matviews", matviewname=local, matviewowner="millpond", hasindexes=indexed,
                 ispopulated=True, **common)  # fmt: skip
    else:
        made.add("pg_tables", schemaname=schema, tablename=local, tableowner="millpond",
                 hasindexes=indexed, hasrules=False, hastriggers=False, rowsecurity=False)  # fmt: skip
        made.add("pg_stat_user_tables", relid=oid, schemaname=schema, relname=local,
                 n_live_tup=0)  # fmt: skip
    kinds = {"r": "BASE TABLE", "m": "VIEW", "v": "VIEW", "f": "FOREIGN"}
    made.add("information_schema.tables", table_catalog="pond", table_schema=schema, table_name=local,
             table_type=kinds[kind], is_insertable_into="YES" if named.kind == "table" else "NO",
             is_typed="NO")  # fmt: skip


def _comments(made: CatalogRows, named: SqlObject, oid: int) -> None:
    places = {c.name: n for n, c in enumerate(named.columns, 1)}
    for column, text in comments(named).items():
        if not column or column in places:
            number = places.get(column, 0)
            made.add("pg_description", objoid=oid, classoid=1259, objsubid=number, description=text)


def _checks(made: CatalogRows, named: SqlObject, oid: int) -> None:
    """The CHECK constraints of a table; those with an index come with it."""
    schema, local, space = made.place(named.name)
    for number, rule in enumerate(c for c in named.constraints if c.check is not None):
        constraint = oid + 1000 + number
        made.add(
            "pg_constraint", oid=constraint, conname=made.local(rule.name), connamespace=space, contype="c",
            condeferrable=False, condeferred=False, convalidated=True, conrelid=oid, contypid=0, conindid=0,
            conparentid=0, confrelid=0, confupdtype="", confdeltype="", confmatchtype="", conislocal=True,
            coninhcount=0, connoinherit=False,
        )  # fmt: skip
        made.add("millpond_definitions", oid=constraint, definition=f"CHECK ({rule.check})")
        common = {
            "constraint_catalog": "pond", "constraint_schema": schema,
            "constraint_name": made.local(rule.name),
        }  # fmt: skip
        made.add("information_schema.check_constraints", **common, check_clause=rule.check)
        made.add("information_schema.table_constraints", **common, table_catalog="pond",
                 table_schema=schema, table_name=local, constraint_type="CHECK", is_deferrable="NO",
                 initially_deferred="NO", enforced="YES")  # fmt: skip


_DECLARED = {"varchar": VARCHAR, "char": BPCHAR, "jsonb": JSONB}
_SIZED = re.compile(r"(\w+)(?:\((\d+)\))?")


def _shown(column: SqlColumn) -> ColumnType:
    """The type that a column was declared with, which may ask more of values than the stored one.

    >>> _shown(SqlColumn("v", "VARCHAR", declared="varchar(52)")).modifier
    56
    """
    sized = _SIZED.fullmatch(column.declared or "")
    if sized is None or sized[1] not in _DECLARED:
        return column_type(column.type)
    return ColumnType(_DECLARED[sized[1]], False, -1 if sized[2] is None else int(sized[2]) + 4)


def _column(made: CatalogRows, named: SqlObject, oid: int, number: int, column: SqlColumn) -> None:
    schema, local, _ = made.place(named.name)
    shown = _shown(column)
    has_default = column.default is not None or column.generated is not None
    required = column.required or (named.kind == "table" and column.name in named.key)
    made.add(
        "pg_attribute", attrelid=oid, attname=column.name, atttypid=shown.oid, attstattarget=-1,
        attlen=shown.size, attnum=number, attndims=int(shown.is_array), attcacheoff=-1,
        atttypmod=shown.modifier,
        attbyval=False, attalign="i", attstorage="p", attcompression="", attnotnull=required,
        atthasdef=has_default, atthasmissing=False,
        attidentity="" if column.identity is None else "a" if column.identity.always else "d",
        attgenerated="s" if column.generated is not None else "", attisdropped=False, attislocal=True,
        attinhcount=0, attcollation=100 if shown.type.name in ("text", "varchar", "bpchar") else 0,
    )  # fmt: skip
    if has_default:
        text = column.default if column.default is not None else column.generated
        made.add("pg_attrdef", oid=oid + number, adrelid=oid, adnum=number, adbin=text)
    numeric = shown.type.name in ("int2", "int4", "int8")
    bits = {"int2": 16, "int4": 32, "int8": 64}.get(shown.type.name)
    decimal = shown.modifier >= 4 and shown.type.name == "numeric"
    sized = shown.modifier >= 4 and shown.type in (VARCHAR, BPCHAR)
    made.add(
        "information_schema.columns", table_catalog="pond", table_schema=schema, table_name=local,
        column_name=column.name, ordinal_position=number, column_default=column.default,
        is_nullable="NO" if required else "YES",
        data_type="ARRAY" if shown.is_array else TYPE_NAMES.get(shown.type.name, shown.type.name),
        character_maximum_length=shown.modifier - 4 if sized else None,
        numeric_precision=bits if numeric else (shown.modifier - 4) >> 16 if decimal else None,
        numeric_precision_radix=2 if numeric else 10 if decimal else None,
        numeric_scale=0 if numeric else (shown.modifier - 4) & 0xFFFF if decimal else None,
        udt_catalog="pond", udt_schema="pg_catalog",
        udt_name=("_" if shown.is_array else "") + shown.type.name, dtd_identifier=str(number),
        is_self_referencing="NO", identity_cycle="NO",
        is_identity="NO" if column.identity is None else "YES",
        identity_generation=None
        if column.identity is None
        else "ALWAYS" if column.identity.always else "BY DEFAULT",
        is_generated="NEVER" if column.generated is None else "ALWAYS",
        generation_expression=column.generated, is_updatable="YES" if named.kind == "table" else "NO",
    )  # fmt: skip


def _index(
    made: CatalogRows, named: SqlObject, name: str, columns: list[str], numbers: Mapping[str, int],
    primary: bool, *, unique: bool, constrains: bool = False,
) -> None:  # fmt: skip
    schema, local, space = made.place(named.name)
    shown_name = made.local(name)
    oid, base = numbers[name], numbers[named.name]
    places = {c.name: n for n, c in enumerate(named.columns, 1)}
    keys = [places[c] for c in columns]
    listed = ", ".join(columns)
    made.add(
        "pg_class", oid=oid, relname=shown_name, relnamespace=space, reltype=0, reloftype=0, relowner=OWNER,
        relam=BTREE, relfilenode=oid, reltablespace=0, relpages=0, reltuples=-1.0, relallvisible=0,
        reltoastrelid=0, relhasindex=False, relisshared=False, relpersistence="p", relkind="i",
        relnatts=len(keys), relchecks=0, relhasrules=False, relhastriggers=False, relhassubclass=False,
        relrowsecurity=False, relforcerowsecurity=False, relispopulated=True, relreplident="n",
        relispartition=False, relrewrite=0, relfrozenxid=0, relminmxid=0,
    )  # fmt: skip
    for number, column in enumerate(columns, 1):
        shown = _shown(named.columns[places[column] - 1])
        made.add(
            "pg_attribute", attrelid=oid, attname=column, atttypid=shown.oid, attlen=shown.size,
            attnum=number, attndims=0, atttypmod=shown.modifier, attnotnull=False, atthasdef=False,
            attidentity="", attgenerated="", attisdropped=False, attislocal=True, attinhcount=0,
            attcollation=0, attstorage="p",
        )  # fmt: skip
    made.add(
        "pg_index", indexrelid=oid, indrelid=base, indnatts=len(keys), indnkeyatts=len(keys),
        indisunique=unique, indnullsnotdistinct=False, indisprimary=primary, indisexclusion=False,
        indimmediate=True, indisclustered=False, indisvalid=True, indcheckxmin=False, indisready=True,
        indislive=True, indisreplident=False, indkey=keys, indcollation=[0] * len(keys),
        indclass=[1978] * len(keys), indoption=[0] * len(keys),
    )  # fmt: skip
    word = "UNIQUE INDEX" if unique else "INDEX"
    text = f"CREATE {word} {shown_name} ON {schema}.{local} USING btree ({listed})"
    made.add("millpond_definitions", oid=oid, definition=text)
    made.add(
        "pg_indexes",
        schemaname=schema,
        tablename=local,
        indexname=shown_name,
        indexdef=text,
    )
    if not primary and not constrains:
        return
    constraint, kind = oid + 1, "PRIMARY KEY" if primary else "UNIQUE"
    made.add(
        "pg_constraint", oid=constraint, conname=shown_name, connamespace=space,
        contype="p" if primary else "u",
        condeferrable=False, condeferred=False, convalidated=True, conrelid=base, contypid=0, conindid=oid,
        conparentid=0, confrelid=0, confupdtype="", confdeltype="", confmatchtype="", conislocal=True,
        coninhcount=0,
        connoinherit=True, conkey=keys,
    )  # fmt: skip
    made.add("millpond_definitions", oid=constraint, definition=f"{kind} ({listed})")
    common = {
        "constraint_catalog": "pond", "constraint_schema": schema, "constraint_name": shown_name,
        "table_catalog": "pond", "table_schema": schema, "table_name": local,
    }  # fmt: skip
    made.add("information_schema.table_constraints", **common, constraint_type=kind,
             is_deferrable="NO", initially_deferred="NO", enforced="YES")  # fmt: skip
    for number, column in enumerate(columns, 1):
        made.add("information_schema.key_column_usage", **common, column_name=column, ordinal_position=number)
        made.add("information_schema.constraint_column_usage", **common, column_name=column)


def known_types() -> dict[int, str]:
    """The names of the types that columns can have, as format_type writes them."""
    types = {t.oid: TYPE_NAMES.get(t.name, t.name) for t in TYPES}
    arrays = {t.array: f"{TYPE_NAMES.get(t.name, t.name)}[]" for t in BY_OID.values() if t is not UNKNOWN}
    return types | arrays
