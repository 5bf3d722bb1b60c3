"""The functions of PostgreSQL that queries about the catalog call, as macros of DuckDB.

A macro is expanded in place: a name in its argument could mean a relation or a column inside the macro.
So the subqueries of macros read views whose columns have names that no query uses (`zz_…`).
"""

from __future__ import annotations

VIEWS = (
    "pgc.zz_class as select c.oid as zz_oid,"
    " case when n.name is null then s.nspname || '.' else '' end || c.relname as zz_name,"
    " s.nspname || '.' || c.relname as zz_whole, n.name is not null as zz_visible"
    " from pgc.pg_class c join pgc.pg_namespace s on s.oid = c.relnamespace"
    " left join pgc.millpond_path n on n.name = s.nspname",
    "pgc.zz_type as select oid as zz_oid, typname as zz_plain, shown as zz_name from pgc.millpond_types",
    "pgc.zz_role as select oid as zz_oid, rolname as zz_name from pgc.pg_roles",
    "pgc.zz_namespace as select oid as zz_oid, nspname as zz_name from pgc.pg_namespace",
    "pgc.zz_text as select oid as zz_oid, definition as zz_name from pgc.millpond_definitions",
    "pgc.zz_column as select attrelid as zz_oid, attnum as zz_number, attname as zz_name"
    " from pgc.pg_attribute",
    "pgc.zz_comment as select objoid as zz_oid, objsubid as zz_place, description as zz_name"
    " from pgc.pg_description",
    "pgc.zz_setting as select name as zz_plain, setting as zz_name from pgc.pg_settings",
)
_COMMENT = "(select zz_name from pgc.zz_comment where zz_oid = o and zz_place = 0)"
_TEXT = "(select zz_name from pgc.zz_text where zz_oid = o)"


def _named(view: str) -> str:
    found = f"(select zz_name from pgc.{view} where zz_oid = cast(o as bigint))"
    return f"coalesce({found}, cast(o as varchar))"


MACROS = (
    "format_type(o, m) as (case when o is null then null else coalesce((select case"
    " when zz_plain = 'numeric' and m >= 4 then"
    " 'numeric(' || ((m - 4) >> 16) || ',' || ((m - 4) & 65535) || ')'"
    " when zz_plain in ('varchar', 'bpchar') and m >= 4 then zz_name || '(' || (m - 4) || ')'"
    " else zz_name end from pgc.zz_type where zz_oid = o), '???') end)",
    "pg_get_userbyid(o) as (coalesce((select zz_name from pgc.zz_role where zz_oid = o),"
    " 'unknown (OID=' || o || ')'))",
    "pg_table_is_visible(o) as (coalesce((select zz_visible from pgc.zz_class where zz_oid = o), true))",
    "pg_type_is_visible(o) as (true)",
    "pg_function_is_visible(o) as (true)",
    "pg_operator_is_visible(o) as (true)",
    "pg_opclass_is_visible(o) as (true)",
    "pg_collation_is_visible(o) as (true)",
    "pg_conversion_is_visible(o) as (true)",
    "pg_ts_config_is_visible(o) as (true)",
    "pg_statistics_obj_is_visible(o) as (true)",
    "pg_get_expr(e, o) as (cast(e as varchar)), (e, o, p) as (cast(e as varchar))",
    f"pg_get_viewdef(o) as ({_TEXT}), (o, p) as ({_TEXT})",
    f"pg_get_constraintdef(o) as ({_TEXT}), (o, p) as ({_TEXT})",
    f"pg_get_indexdef(o) as ({_TEXT}), (o, n, p) as (case when n = 0 then {_TEXT}"
    " else (select zz_name from pgc.zz_column where zz_oid = o and zz_number = n) end)",
    "pg_get_function_result(o) as (cast(null as varchar))",
    "pg_get_function_arguments(o) as (cast(null as varchar))",
    "pg_get_function_identity_arguments(o) as (cast(null as varchar))",
    "pg_get_function_sqlbody(o) as (cast(null as varchar))",
    "pg_get_functiondef(o) as (cast(null as varchar))",
    "pg_get_ruledef(o) as (cast(null as varchar)), (o, p) as (cast(null as varchar))",
    "pg_get_triggerdef(o) as (cast(null as varchar)), (o, p) as (cast(null as varchar))",
    "pg_get_partkeydef(o) as (cast(null as varchar))",
    "pg_get_statisticsobjdef_columns(o) as (cast(null as varchar))",
    "pg_get_serial_sequence(t, c) as (cast(null as varchar))",
    f"obj_description(o) as {_COMMENT}, (o, c) as {_COMMENT}",
    "shobj_description(o, c) as (cast(null as varchar))",
    "col_description(o, c) as (select zz_name from pgc.zz_comment where zz_oid = o and zz_place = c)",
    "has_table_privilege(a, b) as (true), (a, b, c) as (true)",
    "has_any_column_privilege(a, b) as (true), (a, b, c) as (true)",
    "has_column_privilege(a, b, c) as (true), (a, b, c, d) as (true)",
    "has_schema_privilege(a, b) as (true), (a, b, c) as (true)",
    "has_database_privilege(a, b) as (true), (a, b, c) as (true)",
    "has_function_privilege(a, b) as (true), (a, b, c) as (true)",
    "has_sequence_privilege(a, b) as (true), (a, b, c) as (true)",
    "has_tablespace_privilege(a, b) as (true), (a, b, c) as (true)",
    "pg_has_role(a, b) as (true), (a, b, c) as (true)",
    "pg_encoding_to_char(e) as ('UTF8')",
    "pg_char_to_encoding(e) as (6)",
    "getdatabaseencoding() as ('UTF8')",
    "pg_client_encoding() as ('UTF8')",
    "pg_is_in_recovery() as (false)",
    "pg_is_wal_replay_paused() as (false)",
    "pg_relation_size(o) as (cast(0 as bigint)), (o, f) as (cast(0 as bigint))",
    "pg_table_size(o) as (cast(0 as bigint))",
    "pg_indexes_size(o) as (cast(0 as bigint))",
    "pg_total_relation_size(o) as (cast(0 as bigint))",
    "pg_database_size(o) as (cast(0 as bigint))",
    "pg_tablespace_size(o) as (cast(0 as bigint))",
    "pg_size_pretty(n) as (n || ' bytes')",
    "pg_relation_is_publishable(o) as (false)",
    "pg_relation_filenode(o) as (o)",
    "pg_tablespace_location(o) as ('')",
    "pg_tablespace_databases(o) as (cast(null as bigint))",
    "pg_postmaster_start_time() as (now())",
    "pg_conf_load_time() as (now())",
    "pg_advisory_lock(k) as (true)",
    "pg_advisory_unlock(k) as (true)",
    "pg_advisory_unlock_all() as (cast(null as varchar))",
    "pg_try_advisory_lock(k) as (true)",
    "pg_my_temp_schema() as (0)",
    "pg_is_other_temp_schema(o) as (false)",
    "pg_listening_channels() as (cast(null as varchar))",
    "pg_stat_get_numscans(o) as (cast(0 as bigint))",
    "pg_sequence_last_value(o) as (cast(null as bigint))",
    "pg_column_is_updatable(o, n, b) as (true)",
    "pg_export_snapshot() as ('00000003-0000001B-1')",
    "txid_current() as (cast(1 as bigint))",
    "pg_current_xact_id() as (cast(1 as bigint))",
    "age(x) as (0)",
    "quote_ident(n) as (case when regexp_full_match(n, '[a-z_][a-z0-9_$]*') then n"
    " else '\"' || replace(n, '\"', '\"\"') || '\"' end)",
    "quote_literal(n) as ('''' || replace(n, '''', '''''') || '''')",
    "to_regclass_oid(n) as (select zz_oid from pgc.zz_class where zz_name = replace(n, '\"', '')"
    " or zz_whole = replace(n, '\"', '') or cast(zz_oid as varchar) = n limit 1)",
    "to_regtype_oid(n) as (select zz_oid from pgc.zz_type where"
    " zz_name = n or zz_plain = n or cast(zz_oid as varchar) = n limit 1)",
    "to_regnamespace_oid(n) as (select zz_oid from pgc.zz_namespace where"
    " zz_name = replace(n, '\"', '') or cast(zz_oid as varchar) = n limit 1)",
    "to_regrole_oid(n) as (select zz_oid from pgc.zz_role where"
    " zz_name = n or cast(zz_oid as varchar) = n limit 1)",
    f"regclass_name(o) as ({_named('zz_class')})",
    f"regtype_name(o) as ({_named('zz_type')})",
    f"regnamespace_name(o) as ({_named('zz_namespace')})",
    f"regrole_name(o) as ({_named('zz_role')})",
    "_pg_expandarray(a) as (unnest(list_transform(a, lambda v, n: {'x': v, 'n': n})))",
    "_pg_truetypid(a, t) as (a)",
    "_pg_truetypmod(a, t) as (a)",
    "array_remove(a, v) as (list_filter(a, lambda zz: zz is distinct from v))",
    "array_upper(a, d) as (len(a))",
    "array_lower(a, d) as (case when len(a) > 0 then 1 end)",
    "setting_of(n) as (select zz_name from pgc.zz_setting where zz_plain = n)",
    "array_position_of(a, v) as (list_position(a, v))",
    "generate_subscripts(a, d) as (unnest(generate_series(1, len(a))))",
    "inet_server_addr() as (cast(null as varchar))",
    "inet_server_port() as (cast(null as integer))",
    "inet_client_addr() as (cast(null as varchar))",
    "inet_client_port() as (cast(null as integer))",
    "pg_jit_available() as (false)",
    "pg_blocking_pids(p) as (cast([] as integer[]))",
    "pg_get_keywords() as (cast(null as varchar))",
    "pg_stat_get_backend_idset() as (cast(null as integer))",
    "similar_to_regex(p) as ('^(' || replace(replace(p, '%', '.*'), '_', '.') || ')$')",
)  # fmt: skip
NAMES = frozenset(text.partition("(")[0] for text in MACROS)
# Functions whose value depends on the connection: `catalog_rewrite` replaces them with it.
OF_CONNECTION = frozenset(
    ["current_schema", "current_schemas", "current_database", "current_catalog", "current_user",
     "session_user", "user", "current_role", "version", "pg_backend_pid", "current_setting", "set_config",
     "pg_cancel_backend", "pg_terminate_backend"]
)  # fmt: skip
FUNCTIONS = NAMES | OF_CONNECTION | {"current_query", "to_regclass", "to_regtype", "format_type"}
