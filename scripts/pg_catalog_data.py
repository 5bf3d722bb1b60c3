"""Writes src/millpond/sql/pg_catalog/*.json: what the catalog of a real PostgreSQL 15 looks like.

`python -m scripts.pg_catalog_data` starts a server, and stores the columns of every relation in pg_catalog
and information_schema, and the rows of those that do not depend on the tables of a database.
"""

from __future__ import annotations

import json
from pathlib import Path

from tests.sql.fuzz import postgres

FOLDER = Path(__file__).parents[1] / "src" / "millpond" / "sql" / "pg_catalog"
COLUMNS = """
    select n.nspname, c.relname, a.attname, format_type(a.atttypid, null)
    from pg_attribute a join pg_class c on c.oid = a.attrelid join pg_namespace n on n.oid = c.relnamespace
    where n.nspname in ('pg_catalog', 'information_schema') and c.relkind in ('r', 'v') and a.attnum > 0
    and not attisdropped order by 1, 2, a.attnum"""
ROWS = {
    "pg_type": """
        select oid, typname, typnamespace::int, typowner::int, typlen, typbyval, typtype::text,
        typcategory::text, typispreferred, typisdefined, typdelim::text, typrelid::int, typsubscript::text,
        typelem::int, typarray::int, typinput::text, typoutput::text, typreceive::text, typsend::text,
        typalign::text, typstorage::text, typnotnull, typbasetype::int, typtypmod, typndims,
        typcollation::int
        from pg_type where typnamespace = 'pg_catalog'::regnamespace and typrelid = 0
        and typtype in ('b', 'p', 'r', 'm') order by oid""",
    "pg_range": "select rngtypid::int, rngsubtype::int, rngmultitypid::int, rngcollation::int from pg_range",
    "pg_am": "select oid, amname, amhandler::text, amtype::text from pg_am order by oid",
    "pg_collation": """
        select oid, collname, collnamespace::int, collowner::int, collprovider::text, collisdeterministic,
        collencoding, collcollate from pg_collation
        where collname in ('default', 'C', 'POSIX') order by oid""",
    "pg_language": "select oid, lanname, lanispl, lanpltrusted from pg_language order by oid",
    "pg_operator": """
        select oid, oprname, oprnamespace::int, oprkind::text, oprleft::int, oprright::int, oprresult::int
        from pg_operator where oprname in ('=', '<', '>', '<=', '>=', '<>') order by oid""",
    "pg_opclass": """
        select oid, opcmethod::int, opcname, opcnamespace::int, opcintype::int, opcdefault
        from pg_opclass where opcmethod = 403 order by oid""",
}


def main() -> None:
    server = postgres.Server()
    try:
        relations: dict[str, dict[str, list[list[str]]]] = {}
        for schema, relation, column, kind in server.con.execute(COLUMNS).fetchall():
            relations.setdefault(schema, {}).setdefault(relation, []).append([column, kind])
        rows = {}
        for name, query in ROWS.items():
            cursor = server.con.execute(query)
            assert cursor.description is not None
            rows[name] = {
                "columns": [c.name for c in cursor.description],
                "rows": [list(row) for row in cursor.fetchall()],
            }
    finally:
        server.close()
    for file, found in (("relations.json", relations), ("rows.json", rows)):
        (FOLDER / file).write_text(json.dumps(found, separators=(",", ":"), default=str) + "\n")


if __name__ == "__main__":
    main()
