"""Replaces names with a schema by those under which objects are stored: `sales.orders` is `"sales.orders"`.

Law: where a pond has no schema but `public`, a text stays as it is, but for `public.` before a name.  A
resolved text is resolved to itself over the search path `public`.

An object in a schema has one name with a dot (decision 39), so everything behind this file knows names only.
A column may be called by the last part of its relation's name, `orders.id`, or by all of it,
`sales.orders.id`; where the relation has an alias, only by that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import TokenType

from millpond.errors import InvalidError
from millpond.sql.text.named_places import NamedPlaces, is_name
from millpond.sql.text.parse import MAKE_SCHEMA, SYSTEM_SCHEMAS, SqlFragment, tokens_of

PUBLIC = "public"
RESERVED = (*SYSTEM_SCHEMAS, "information_schema", "pg_catalog", "main", "pond")
Edit = tuple[int, int, str]


@dataclass(frozen=True)
class Names:
    """What names can mean: schemas and objects by their names in lower case, and the search path."""

    schemas: Mapping[str, str]
    objects: Mapping[str, str]
    functions: Collection[str] = ()  # in lower case
    path: tuple[str, ...] = (PUBLIC,)

    def stored(self, schema: str, name: str) -> str:
        """The name under which an object of a schema is stored; it need not exist."""
        if schema.lower() == PUBLIC:
            return name
        made = f"{self.schemas.get(schema.lower(), schema)}.{name}"
        return self.objects.get(made.lower(), made)

    def find(self, name: str, known: Collection[str]) -> str | None:
        """The stored name of the first object on the path that is called so."""
        found = (self.stored(schema, name) for schema in self.searched())
        return next((one for one in found if one.lower() in known), None)

    def searched(self) -> Iterator[str]:
        """The schemas of the path that exist; a new object goes to the first."""
        return (s for s in self.path if s.lower() == PUBLIC or s.lower() in self.schemas)

    def has(self, schema: str) -> bool:
        return schema.lower() == PUBLIC or schema.lower() in self.schemas


def schema_of(name: str, schemas: Mapping[str, str]) -> str | None:
    """The schema of a stored name; None for one in `public`.

    >>> schema_of("sales.orders", {"sales": "sales"}), schema_of("sales.orders", {}), schema_of("t", {})
    ('sales', None, None)
    """
    first, dot, _ = name.partition(".")
    return schemas.get(first.lower()) if dot else None


def without_schema(name: str, schemas: Mapping[str, str]) -> str:
    """The name of an object within its schema.

    >>> without_schema("sales.orders", {"sales": "sales"}), without_schema("a.b", {})
    ('orders', 'a.b')
    """
    return name.partition(".")[2] if schema_of(name, schemas) is not None else name


def as_written(text: str, schemas: Mapping[str, str]) -> str:
    """A stored text with the names of objects as users write them.

    >>> as_written('SELECT "id" FROM "sales.orders"', {"sales": "sales"})
    'SELECT "id" FROM sales.orders'
    """
    if not schemas or "." not in text:
        return text
    found, at = "", 0
    for token in tokens_of(text, "duckdb"):
        name = str(token.text)
        if token.token_type is TokenType.IDENTIFIER and (schema := schema_of(name, schemas)) is not None:
            parts = (schema, without_schema(name, schemas))
            found += text[at : token.start] + ".".join(map(_as_name, parts))
            at = token.end + 1
    return found + text[at:]


def _as_name(name: str) -> str:
    plain = name == name.lower() and name.replace("_", "a").isalnum() and not name[:1].isdecimal()
    return name if plain else '"' + name.replace('"', '""') + '"'


def search_path(values: Sequence[str]) -> tuple[str, ...]:
    """The search path that SET names; nobody has a schema of the user's own name.

    >>> search_path(['"$user"', " sales", "public"])
    ('sales', 'public')
    """
    found = [value.strip().strip("\"'") for value in values]
    return tuple(v for v in found if v and v.lower() not in ("$user", "pg_catalog"))


def check_schema_name(name: str) -> None:
    """Raise InvalidError if a schema cannot have this name."""
    lower = name.lower()
    if lower.startswith("pg_"):
        raise InvalidError(
            f'unacceptable schema name "{name}"', detail='the prefix "pg_" is reserved for system schemas'
        )
    if lower in RESERVED or lower.startswith("_") or any(c in "./!" or not c.isprintable() for c in lower):
        raise InvalidError(
            f'unacceptable schema name "{name}"',
            detail="it is the system's own, begins with an underscore, or contains a dot or a slash",
            hint="choose another name",
        )


def resolved(fragment: SqlFragment, names: Names) -> SqlFragment:
    """The statement with stored names."""
    lower = {str(t.text).lower() for t in fragment.tokens}
    plain = [s.lower() for s in names.path] == [PUBLIC]
    if plain and not (lower & {PUBLIC, *names.schemas} and "." in lower) and "SCHEMA" not in fragment.words:
        return fragment
    if fragment.word(0) in ("SET", "RESET", "SHOW") and fragment.word(1) != "CREATE":
        return fragment
    edits = _Resolution(fragment, names).edits()
    return fragment.rewritten(edits) if edits else fragment


class _Resolution:
    def __init__(self, fragment: SqlFragment, names: Names) -> None:
        self.fragment = fragment
        self.names = names
        self.places = NamedPlaces(fragment)

    def edits(self) -> list[Edit]:
        """The sections to replace; names of relations first, as they say what columns may be called by."""
        found = {}
        objects = self.places.objects
        for place in sorted(objects):
            found[place] = self._object(place)
        for place, token in enumerate(self.fragment.tokens):
            if place not in objects and is_name(token) and self.fragment.word(place - 1) != ".":
                found[place] = self._column_or_call(place)
        made = [found[place] for place in sorted(found)]
        return [edit for edit in (*made, self._altered_name()) if edit is not None]

    def _text(self, place: int) -> str:
        return str(self.fragment.tokens[place].text)

    def _replace(self, first: int, last: int, name: str) -> Edit:
        tokens = self.fragment.tokens
        start, end = tokens[first].start, tokens[last].end + 1
        if last > first and name == self._text(last):  # `public.t`: what follows stays at its place
            kept = self.fragment.text[tokens[last].start : end]
            return start, end, " " * (end - start - len(kept)) + kept
        return start, end, '"' + name.replace('"', '""') + '"'

    # -- relations and other objects --------------------------------------------------------

    def _object(self, place: int) -> Edit | None:
        parts, first = self.places.parts(place), self._text(place)
        if self.fragment.has(0, "COMMENT", "ON", "COLUMN"):
            parts -= 1
            if parts == 0:
                return None
        if parts == 1:
            return self._unqualified(place)
        if parts > 2 or first.lower() in RESERVED:
            return None
        if not self.names.has(first):
            if self.fragment.word(0) in ("CREATE", "DROP", "ALTER"):
                self.fragment.fail(f'schema "{first}" does not exist', place, MAKE_SCHEMA)
            return None
        name = self._text(place + 2)
        made = self.names.stored(first, name)
        self._register(place, place + 2, name, made)
        return self._replace(place, place + 2, made)

    def _unqualified(self, place: int) -> Edit | None:
        name = self._text(place)
        made: str | None = name
        if place == self.places.created:
            made = self.names.stored(self._home(place), name)
        elif name.lower() not in self.places.with_names:
            is_function = self.fragment.word(place - 1) in ("FUNCTION", "MACRO")
            known = self.names.functions if is_function else self.names.objects
            made = self.names.find(name, known)
        is_moved = made is not None and made.lower() != name.lower()
        self._register(place, place, name, made if is_moved else None)
        return self._replace(place, place, made) if made is not None and is_moved else None

    def _register(self, place: int, last: int, name: str, made: str | None) -> None:
        if not self.places.has_alias(last):
            self.places.scopes[place].called[name.lower()] = made

    def _home(self, place: int) -> str:
        """The schema of a new object: that of its table for an index, else the first on the path."""
        on = self.fragment.find("ON") if "INDEX" in self.fragment.words[:place] else None
        if on is not None and on + 1 < len(self.fragment):
            table = on + (2 if self.fragment.word(on + 1) == "ONLY" else 1)
            whole = self._stored_at(table)
            return schema_of(whole, self.names.schemas) or PUBLIC
        home = next(self.names.searched(), None)
        if home is None:
            self.fragment.fail(
                "no schema has been selected to create in",
                place,
                "SET search_path TO public, or write schema.name",
            )
            raise AssertionError
        return home

    def _stored_at(self, place: int) -> str:
        """The stored name of the object that is named at a place."""
        if self.places.parts(place) == 2 and self.names.has(self._text(place)):
            return self.names.stored(self._text(place), self._text(place + 2))
        return self.names.find(self._text(place), self.names.objects) or self._text(place)

    def _altered_name(self) -> Edit | None:
        """ALTER … RENAME TO stays in the schema, SET SCHEMA moves to another: both are a new stored name."""
        fragment, place = self.fragment, min(self.places.objects, default=None)
        at, move = fragment.find("RENAME", "TO"), fragment.find("SET", "SCHEMA")
        if fragment.word(0) != "ALTER" or place is None or (at is None and move is None):
            return None
        whole = self._stored_at(place)
        schema = schema_of(whole, self.names.schemas)
        if at is not None:
            if schema is None or at + 3 != len(fragment):
                return None
            return self._replace(at + 2, at + 2, self.names.stored(schema, self._text(at + 2)))
        assert move is not None
        if move + 3 != len(fragment):
            fragment.fail("the name of a schema should stand here", move + 2)
        to = self._text(move + 2)
        if not self.names.has(to):
            fragment.fail(f'schema "{to}" does not exist', move + 2, MAKE_SCHEMA)
        made = self.names.stored(to, without_schema(whole, self.names.schemas))
        start, _, quoted = self._replace(move, move, made)
        return start, fragment.tokens[move + 2].end + 1, f"RENAME TO {quoted}"

    # -- columns and functions --------------------------------------------------------------

    def _column_or_call(self, place: int) -> Edit | None:
        parts, first = self.places.parts(place), self._text(place).lower()
        if self.fragment.word(place + 2 * parts - 1) == "(":
            return self._call(place, parts)
        scope = self.places.scopes[place]
        if parts > 2 and self.names.has(first):
            name = self._text(place + 2)
            made = self.names.stored(first, name)
            is_named = scope.find(name.lower()) == made
            if is_named or (first not in self.places.standing and made.lower() in self.names.objects):
                return self._replace(place, place + 2, made)
        if parts > 1 and (called := scope.find(first)) is not None:
            return self._replace(place, place, called) if called.lower() != first else None
        return None

    def _call(self, place: int, parts: int) -> Edit | None:
        name = self._text(place)
        if parts == 1:
            is_plain = self.fragment.tokens[place].token_type in (TokenType.VAR, TokenType.IDENTIFIER)
            found = self.names.find(name, self.names.functions) if is_plain else None
            return self._replace(place, place, found) if found and found.lower() != name.lower() else None
        if parts != 2 or not self.names.has(name):
            return None
        made = self.names.stored(name, self._text(place + 2))
        known = made.lower() in self.names.functions
        return self._replace(place, place + 2, made) if known else None
