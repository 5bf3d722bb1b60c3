"""CREATE SINK: sends the changes of a view to a target after each commit.

`sink_connectors.py` has the connectors and their options.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from millpond.flow.builder import Builder
from millpond.plan.objects import SqlObject
from millpond.plan.sink_check import checked_sink
from millpond.sql.binding.output_columns import check_unique
from millpond.sql.binding.types import UTC
from millpond.sql.result import Result
from millpond.sql.statements.connector_options import check_connector
from millpond.sql.statements.create_object import create
from millpond.sql.statements.kafka_sink_options import sink_format_clause
from millpond.sql.statements.materialize import TIME_ZONE, materialize
from millpond.sql.statements.sink_connectors import SETTINGS, SINK_CONNECTORS, make_sink
from millpond.sql.text.duckdb_text import readable
from millpond.sql.text.emit_clause import BEFORE_THEY_CLOSE, take_emission
from millpond.sql.text.options import read_options
from millpond.sql.text.parse import Words
from millpond.sql.text.time_windows import as_plain_sql

if TYPE_CHECKING:
    from millpond.sql.session import SqlSession

_OPTIONS = {name: (*found.options, *SETTINGS) for name, found in SINK_CONNECTORS.items()}


def run(replaces: bool) -> Callable[[SqlSession, Words], Result]:
    def called(session: SqlSession, words: Words) -> Result:
        exists = words.if_not_exists()
        name = words.name("name of the sink")
        view = text = None
        emission = BEFORE_THEY_CLOSE
        if words.take("FROM"):
            view = words.name("name of the view")
        else:
            words.need("AS")
            end = words.fragment.find("WITH", "(", start=words.at + 1)
            if end is None:
                words.fail("WITH (connector = '…') is missing at the end")
            body, emission = take_emission(words.fragment.part(words.at, end))
            text = readable(body)
            words.at = end or 0
        words.need("WITH")
        options = read_options(words)
        sink_format_clause(words, options)
        words.end()
        check_connector(options, _OPTIONS, "connector for sinks")

        def make(builder: Builder) -> SqlObject:
            sink, settings = make_sink(options["connector"], dict(options))
            if text is not None:
                made = materialize(session, builder, name, text, emission, "")
                check_unique(session.catalog, as_plain_sql(made.text))
                read, uses, step = name, made.uses, made.step
            else:
                assert view is not None
                found = session.catalog.get(view, "table", "materialized view")
                read, uses, step = found.name, (found.name,), None
            zone = {} if text is None or session.time_zone == UTC else {TIME_ZONE: session.time_zone}
            node = checked_sink(builder.plan, name, read, sink, settings)
            builder.change(lambda plan: plan.with_sink(node))
            return SqlObject(
                "sink",
                name,
                step=step,
                uses=uses,
                options={**options, **zone},
                text=text or "",
                said=words.fragment.sql,
            )

        result = create(session, name, "sink", exists=exists, replaces=replaces, make=make)
        head = session.host.find_head()
        if head is not None and name in head.detached:
            result.warnings = [
                *result.warnings,
                f"sink {name!r} is detached and receives nothing until ALTER SINK {name} ATTACH",
            ]
        return result

    return called
