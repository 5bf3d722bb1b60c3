"""Names with a schema become stored names, and nothing else changes."""

from __future__ import annotations

import pytest

from millpond.errors import InvalidError
from millpond.sql.text.parse import statements
from millpond.sql.text.schema_names import Names, resolved

OBJECTS = ("orders", "t", "sales.orders", "sales.Items", "sales.f", "ops.t", "g")
KNOWN = Names({"sales": "sales", "ops": "ops"}, {o.lower(): o for o in OBJECTS}, {"sales.f", "g"})
CASES = [
    ("SELECT 1", None),
    ("SELECT t.id FROM t, orders WHERE orders.id = t.sales.x", None),
    ("SELECT orders.id FROM sales.orders", 'SELECT "sales.orders".id FROM "sales.orders"'),
    ("SELECT sales.orders.id FROM sales.orders o", 'SELECT "sales.orders".id FROM "sales.orders" o'),
    ("SELECT o.id, orders.x FROM sales.orders AS o, orders", 'SELECT o.id, orders.x FROM "sales.orders" AS o, orders'),
    ("SELECT sales.items FROM t AS sales", None),
    ("SELECT items.* FROM SALES.items", 'SELECT "sales.Items".* FROM "sales.Items"'),
    ("SELECT sales.f(1), f(2)", 'SELECT "sales.f"(1), f(2)'),
    ("SELECT 'sales.orders', \"sales.orders\".a FROM \"sales.orders\"", None),
    (
        "SELECT orders.a FROM orders WHERE EXISTS (SELECT orders.b FROM sales.orders)",
        'SELECT orders.a FROM orders WHERE EXISTS (SELECT "sales.orders".b FROM "sales.orders")',
    ),
    (
        "SELECT orders.a FROM (sales.orders JOIN t USING (id)) WHERE orders.a IS DISTINCT FROM t.b",
        'SELECT "sales.orders".a FROM ("sales.orders" JOIN t USING (id)) WHERE "sales.orders".a IS DISTINCT FROM t.b',
    ),
    ("SELECT extract(year FROM orders.at) FROM sales.orders", 'SELECT extract(year FROM "sales.orders".at) FROM "sales.orders"'),
    ("SELECT a FROM public.t WHERE public.t.a = 1", 'SELECT a FROM        t WHERE        t.a = 1'),
    ("INSERT INTO sales.orders (id) VALUES (1.5)", 'INSERT INTO "sales.orders" (id) VALUES (1.5)'),
    ("UPDATE sales.orders SET a = orders.a", 'UPDATE "sales.orders" SET a = "sales.orders".a'),
    ("DELETE FROM sales.orders USING t WHERE orders.a = t.a", 'DELETE FROM "sales.orders" USING t WHERE "sales.orders".a = t.a'),
    ("DROP TABLE sales.orders, ops.t CASCADE", 'DROP TABLE "sales.orders", "ops.t" CASCADE'),
    ("ALTER TABLE sales.orders RENAME TO bills", 'ALTER TABLE "sales.orders" RENAME TO "sales.bills"'),
    ("ALTER TABLE sales.orders SET SCHEMA ops", 'ALTER TABLE "sales.orders" RENAME TO "ops.orders"'),
    ("ALTER TABLE sales.orders SET SCHEMA public", 'ALTER TABLE "sales.orders" RENAME TO "orders"'),
    ("CREATE INDEX i ON sales.orders (a)", 'CREATE INDEX "sales.i" ON "sales.orders" (a)'),
    ("GRANT SELECT, INSERT ON sales.orders, t TO orders", 'GRANT SELECT, INSERT ON "sales.orders", t TO orders'),
    ("SELECT * FROM TUMBLE(sales.orders, at, INTERVAL '1 hour')", 'SELECT * FROM TUMBLE("sales.orders", at, INTERVAL \'1 hour\')'),
    ("COMMENT ON COLUMN sales.orders.a IS 'x'", "COMMENT ON COLUMN \"sales.orders\".a IS 'x'"),
    ("SUBSCRIBE sales.orders SINCE EPOCH 1", 'SUBSCRIBE "sales.orders" SINCE EPOCH 1'),
]  # fmt: skip


@pytest.mark.parametrize(("written", "wanted"), CASES)
def test_names_are_replaced(written: str, wanted: str | None) -> None:
    (fragment,) = statements(written, "postgres")
    found = resolved(fragment, KNOWN)
    assert found.sql == (written if wanted is None else wanted)
    assert resolved(found, KNOWN).sql == found.sql


@pytest.mark.parametrize(
    ("written", "wanted"),
    [
        ("SELECT orders.a, f(t.b) FROM orders, t", 'SELECT "sales.orders".a, "sales.f"("ops.t".b) FROM "sales.orders", "ops.t"'),
        ("SELECT orders FROM public.t", "SELECT orders FROM        t"),
        ("WITH t AS (SELECT 1 a) SELECT t.a FROM t", None),
        ("CREATE TABLE fresh (a int)", 'CREATE TABLE "sales.fresh" (a int)'),
        ("SELECT g(a) FROM nosuch", None),
    ],
)  # fmt: skip
def test_names_are_looked_for_on_the_path(written: str, wanted: str | None) -> None:
    (fragment,) = statements(written, "postgres")
    path = Names(KNOWN.schemas, KNOWN.objects, KNOWN.functions, ("nosuch", "sales", "ops", "public"))
    assert resolved(fragment, path).sql == (written if wanted is None else wanted)


def test_an_unknown_schema_and_an_empty_path_are_refused() -> None:
    (fragment,) = statements("DROP TABLE nosuch.t", "postgres")
    with pytest.raises(InvalidError, match='schema "nosuch" does not exist'):
        resolved(fragment, Names(KNOWN.schemas, KNOWN.objects, (), ("sales",)))
    (fragment,) = statements("CREATE VIEW v AS SELECT 1", "postgres")
    with pytest.raises(InvalidError, match="no schema has been selected to create in"):
        resolved(fragment, Names(KNOWN.schemas, KNOWN.objects, (), ("gone",)))
