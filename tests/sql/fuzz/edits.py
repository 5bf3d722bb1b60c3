"""How the program changes while it runs: views replaced, renamed, swapped, dropped; columns that come, go and are renamed.

The engines that answer in batch hear of what changes rows alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.sql.fuzz.cases import Edit, View
from tests.sql.fuzz.names import Names


@dataclass(frozen=True)
class Replace(Edit):
    """Another query in a view's place, of the same columns."""

    view: View

    def about(self) -> tuple[str, ...]:
        return (self.view.name,)

    def sql(self) -> str:
        return self.view.sql("CREATE OR REPLACE")

    def batch(self, engine: str) -> list[str]:
        return [self.view.batch(engine, "CREATE OR REPLACE")]


@dataclass(frozen=True)
class Drop(Edit):
    """A view goes that nobody reads."""

    view: View

    def about(self) -> tuple[str, ...]:
        return (self.view.name,)

    def sql(self) -> str:
        return f"DROP {'MATERIALIZED ' if self.view.stored else ''}VIEW {self.view.name}"

    def batch(self, engine: str) -> list[str]:
        return [f"DROP VIEW {self.view.name}"]


@dataclass(frozen=True)
class Rename(Edit):
    view: str
    to: str

    def about(self) -> tuple[str, ...]:
        return (self.view,)

    def sql(self) -> str:
        return f"ALTER MATERIALIZED VIEW {self.view} RENAME TO {self.to}"

    def rename(self, names: Names) -> None:
        names.now[self.view] = self.to


@dataclass(frozen=True)
class Swap(Edit):
    one: str
    other: str

    def about(self) -> tuple[str, ...]:
        return (self.one, self.other)

    def sql(self) -> str:
        return f"ALTER MATERIALIZED VIEW {self.one} SWAP WITH {self.other}"

    def rename(self, names: Names) -> None:
        names.swap(self.one, self.other)


@dataclass(frozen=True)
class AddColumn(Edit):
    table: str
    column: str  # with its type and default

    def sql(self) -> str:
        return f"ALTER TABLE {self.table} ADD COLUMN {self.column}"


@dataclass(frozen=True)
class RenameColumn(Edit):
    """A column is called otherwise, and perhaps another one takes its name."""

    table: str
    column: str
    to: str
    heir: str = ""  # type and default of that one

    def sql(self) -> str:
        heir = f", ADD COLUMN {self.column} {self.heir}" if self.heir else ""
        return f"ALTER TABLE {self.table} RENAME COLUMN {self.column} TO {self.to}{heir}"

    def rename(self, names: Names) -> None:
        names.now[self.column] = self.to


@dataclass(frozen=True)
class DropColumn(Edit):
    """Refused where views read it, unless they go with it."""

    table: str
    column: str
    cascade: bool

    def sql(self) -> str:
        return f"ALTER TABLE {self.table} DROP COLUMN {self.column}{' CASCADE' if self.cascade else ''}"


@dataclass(frozen=True)
class Index(Edit):
    name: str
    on: str  # a table or a view
    column: str
    of_view: bool = False

    def about(self) -> tuple[str, ...]:
        return (self.on,) if self.of_view else ()

    def sql(self) -> str:
        return f"CREATE INDEX {self.name} ON {self.on} ({self.column})"
