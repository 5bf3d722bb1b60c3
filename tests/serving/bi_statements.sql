SELECT 1
SET extra_float_digits = 3
SET application_name = 'Metabase v0.50'
SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY
SET search_path TO public, pg_catalog
SET client_min_messages TO warning
SET lock_timeout = '10s'
SET datestyle = 'ISO'
SET intervalstyle = 'postgres'
SET statement_timeout TO '30s'
SET default_transaction_read_only = on
SHOW search_path
SHOW transaction isolation level
SHOW server_version
SHOW max_connections
SHOW timezone
SHOW standard_conforming_strings
SELECT current_database(), current_schema(), session_user
SELECT version()
SELECT current_setting('server_version_num')::int
SELECT current_setting('server_version_num')::int/100 as version
SELECT set_config('search_path', '', false)
SELECT nspname FROM pg_catalog.pg_namespace WHERE nspname <> 'information_schema' AND nspname NOT LIKE 'pg_%'
SELECT t.oid,t.*,c.relkind,format_type(nullif(t.typbasetype, 0), t.typtypmod) as base_type_name, d.description FROM pg_catalog.pg_type t LEFT OUTER JOIN pg_catalog.pg_type et ON et.oid=t.typelem LEFT OUTER JOIN pg_catalog.pg_class c ON c.oid=t.typrelid LEFT OUTER JOIN pg_catalog.pg_description d ON t.oid=d.objoid WHERE t.typname IS NOT NULL AND (c.relkind IS NULL OR c.relkind = 'c') AND (et.typcategory IS NULL OR et.typcategory <> 'C')
SELECT db.oid,db.* FROM pg_catalog.pg_database db WHERE datallowconn AND NOT datistemplate
select * from pg_catalog.pg_settings where name='standard_conforming_strings'
SELECT n.oid,n.*,d.description FROM pg_catalog.pg_namespace n LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid=n.oid AND d.objsubid=0 AND d.classoid='pg_namespace'::regclass ORDER BY nspname
SELECT c.oid,c.*,d.description,pg_catalog.pg_get_expr(c.relpartbound, c.oid) as partition_expr, pg_catalog.pg_get_partkeydef(c.oid) as partition_key FROM pg_catalog.pg_class c LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid=c.oid AND d.objsubid=0 AND d.classoid='pg_class'::regclass WHERE c.relnamespace=2200 AND c.relkind not in ('i','I','c')
SELECT c.relname,a.*,pg_catalog.pg_get_expr(ad.adbin, ad.adrelid, true) as def_value,dsc.description,dep.objid FROM pg_catalog.pg_attribute a INNER JOIN pg_catalog.pg_class c ON (a.attrelid=c.oid) LEFT OUTER JOIN pg_catalog.pg_attrdef ad ON (a.attrelid=ad.adrelid AND a.attnum = ad.adnum) LEFT OUTER JOIN pg_catalog.pg_description dsc ON (c.oid=dsc.objoid AND a.attnum = dsc.objsubid) LEFT OUTER JOIN pg_depend dep on dep.refobjid = a.attrelid AND dep.deptype = 'i' and dep.refobjsubid = a.attnum and dep.classid = dep.refclassid WHERE NOT a.attisdropped AND c.relname = 't' ORDER BY a.attnum
SELECT c.oid,c.*,t.relname as tabrelname,rt.relnamespace as refnamespace,d.description, case when c.contype='c' then "substring"(pg_get_constraintdef(c.oid), 7) else null end consrc_copy FROM pg_catalog.pg_constraint c INNER JOIN pg_catalog.pg_class t ON t.oid=c.conrelid LEFT OUTER JOIN pg_catalog.pg_class rt ON rt.oid=c.confrelid LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid=c.oid AND d.objsubid=0 AND d.classoid='pg_constraint'::regclass ORDER BY c.oid
SELECT i.*,i.indkey as keys,c.relname,c.relnamespace,c.relam,c.reltablespace,tc.relname as tabrelname,dsc.description,pg_catalog.pg_get_expr(i.indpred, i.indrelid) as pred_expr,pg_catalog.pg_get_expr(i.indexprs, i.indrelid, true) as expr,pg_catalog.pg_relation_size(i.indexrelid) as index_rel_size,pg_catalog.pg_stat_get_numscans(i.indexrelid) as index_num_scans FROM pg_catalog.pg_index i INNER JOIN pg_catalog.pg_class c ON c.oid=i.indexrelid INNER JOIN pg_catalog.pg_class tc ON tc.oid=i.indrelid LEFT OUTER JOIN pg_catalog.pg_description dsc ON i.indexrelid=dsc.objoid ORDER BY c.relname
SELECT NULL AS TABLE_CAT, n.nspname AS TABLE_SCHEM, c.relname AS TABLE_NAME FROM pg_catalog.pg_namespace n, pg_catalog.pg_class c LEFT JOIN pg_catalog.pg_description d ON (c.oid = d.objoid AND d.objsubid = 0 and d.classoid = 'pg_class'::regclass) WHERE c.relnamespace = n.oid AND c.relkind IN ('r','p','v','f','m') AND n.nspname !~ '^pg_' ORDER BY 1,2,3
SELECT quote_ident(table_schema) || '.' || quote_ident(table_name) AS "table" FROM information_schema.tables WHERE quote_ident(table_schema) NOT IN ('information_schema','pg_catalog','_timescaledb_cache') ORDER BY 1
SELECT quote_ident(column_name) AS "column", data_type AS "type" FROM information_schema.columns WHERE quote_ident(table_name) = 't'
SELECT extversion FROM pg_extension WHERE extname = 'timescaledb'
select nsp.nspname as "schema", c.relname as "name", c.reltuples as estimated_row_count from pg_class c inner join pg_namespace nsp on c.relnamespace = nsp.oid where c.relkind in ('r','v','m') and not (nsp.nspname ~ '^information_schema|catalog_history|pg_')
SELECT c.column_name AS name, case when c.udt_schema in ('public','pg_catalog') then format('%s', c.udt_name) else format('"%s"."%s"', c.udt_schema, c.udt_name) end AS "database-type", c.ordinal_position - 1 AS "database-position", c.table_schema AS "table-schema", c.table_name AS "table-name", pk.column_name IS NOT NULL AS "pk?", col_description(cast(cast(format('%I.%I', cast(c.table_schema AS varchar), cast(c.table_name AS varchar)) AS regclass) AS oid), c.ordinal_position) AS "field-comment" FROM information_schema.columns AS c LEFT JOIN (SELECT tc.table_schema, tc.table_name, kc.column_name FROM information_schema.table_constraints AS tc INNER JOIN information_schema.key_column_usage AS kc ON tc.constraint_name = kc.constraint_name AND tc.table_schema = kc.table_schema AND tc.table_name = kc.table_name WHERE tc.constraint_type = 'PRIMARY KEY') AS pk ON c.table_schema = pk.table_schema AND c.table_name = pk.table_name AND c.column_name = pk.column_name WHERE c.table_schema !~ '^information_schema|catalog_history|pg_' ORDER BY 3
with table_privileges as (select NULL as role, t.schemaname as schema, t.objectname as table, pg_catalog.has_any_column_privilege(current_user, '"' || replace(t.schemaname, '"', '""') || '"' || '.' || '"' || replace(t.objectname, '"', '""') || '"', 'update') as update, pg_catalog.has_table_privilege(current_user, '"' || t.schemaname || '"."' || t.objectname || '"', 'SELECT') as select from (select schemaname, tablename as objectname from pg_catalog.pg_tables union select schemaname, viewname as objectname from pg_views union select schemaname, matviewname as objectname from pg_matviews) t where t.schemaname !~ '^pg_' and t.schemaname <> 'information_schema') select t.* from table_privileges t
SELECT pg_catalog.pg_is_in_recovery(), pg_catalog.txid_current()
SELECT age(datfrozenxid) FROM pg_database
SELECT pg_size_pretty(pg_database_size(current_database()))
SELECT count(*), current_user FROM t
SELECT now(), name FROM t WHERE id = 1
SELECT name, version() FROM t WHERE id = 1
SELECT to_char(at, 'YYYY-MM-DD') FROM t
SELECT date_trunc('month', at) AS m, count(*) FROM t GROUP BY 1 ORDER BY 1
SELECT "public"."t"."id" AS "id", "public"."t"."name" AS "name" FROM "public"."t" LIMIT 2000
SELECT CAST("public"."t"."at" AS date) AS "at", COUNT(*) AS "count" FROM "public"."t" GROUP BY CAST("public"."t"."at" AS date) ORDER BY CAST("public"."t"."at" AS date) ASC
SELECT * FROM (SELECT * FROM t) "source" LIMIT 10
SELECT $$dollar$$ AS d
INSERT INTO public.t (id, name) VALUES (900, 'x')
DELETE FROM "public"."t" WHERE id = 900
DISCARD ALL
BEGIN READ ONLY
SELECT count(*) FROM t
COMMIT
BEGIN ISOLATION LEVEL REPEATABLE READ
ROLLBACK
START TRANSACTION READ ONLY
END
CLOSE ALL
RESET ALL
UNLISTEN *
EXPLAIN SELECT * FROM t
SELECT pg_sleep(0)
SELECT * FROM pg_stat_user_tables
SELECT datname FROM pg_stat_database
SELECT * FROM pg_locks
SELECT usename FROM pg_user
SELECT rolname FROM pg_roles
SELECT array_to_string(array_agg(relname), ',') FROM pg_class WHERE relkind = 'r'
SELECT generate_series(1, 3)
SELECT * FROM generate_series(1, 3) AS g(x)
SELECT string_agg(name, ', ' ORDER BY name) FROM t
SELECT 'a' ~ 'A', 'a' ~* 'A', name ILIKE 'A%' FROM t
SELECT COALESCE(n, 0)::numeric(10,2) FROM t
VALUES (1, 'a'), (2, 'b')
