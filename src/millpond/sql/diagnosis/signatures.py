"""Which kinds of types the functions and operators of PostgreSQL take.

`signatures.tsv` is made of the catalog of a PostgreSQL (`tests/functions/signatures.py`).  Only families of
types are distinguished: all numbers are one, all texts are one, and so are dates and timestamps.

Law: what PostgreSQL takes is never refused; a wrong type of the same family may pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import resources

_FAMILIES = {
    **dict.fromkeys(
        ("smallint", "integer", "bigint", "numeric", "real", "double precision", "oid"), "number"
    ),
    **dict.fromkeys(("text", "character varying", "character", "name", '"char"'), "text"),
    **dict.fromkeys(("date", "timestamp without time zone", "timestamp with time zone"), "date"),
    **dict.fromkeys(("time without time zone", "time with time zone"), "time"),
    **dict.fromkeys(("json", "jsonb"), "json"),
    **dict.fromkeys(('"any"', "anyelement", "anycompatible"), "any"),
    **dict.fromkeys(("anynonarray", "anycompatiblenonarray"), "one"),
    **dict.fromkeys(("anyarray", "anycompatiblearray"), "array"),
}


_OTHERS = frozenset(  # that are not in the file, since many types fit
    [
        *("count", "extract", "date_part", "rank", "dense_rank", "percent_rank", "cume_dist", "mode"),
        *("percentile_cont", "percentile_disc", "row_to_json", "make_interval", "normalize", "overlaps"),
    ]
)


def family(kind: str) -> str:
    """The family of a type.

    >>> family("bigint"), family("text[]"), family("jsonb"), family("unknown"), family('"any"')
    ('number', 'text[]', 'json', 'unknown', 'any')
    """
    if kind.endswith("[]"):
        return f"{family(kind[:-2])}[]"
    return _FAMILIES.get(kind, kind)


def takes(name: str, kinds: Sequence[str]) -> bool:
    """May a function or an operator take these types?  Yes for one that is not listed.

    >>> takes("upper", ["integer"]), takes("upper", ["unknown"]), takes("+", ["date", "integer"])
    (False, True, True)
    >>> takes("+", ["text", "integer"]), takes("string_agg", ["text"]), takes("json_array_length", ["json"])
    (False, False, True)
    """
    known = _signatures().get(name)
    if known is None:
        return True
    given = [family(kind) for kind in kinds]
    fitting = [taken for one in known if (taken := _widened(one, len(given))) is not None]
    if not fitting:
        return name != "string_agg"  # with other numbers of arguments DuckDB's own function may be meant
    return any(all(map(_fits, taken, given)) for taken in fitting)


def is_listed(name: str) -> bool:
    """Is this a function of PostgreSQL?"""
    return name in _signatures() or name in _OTHERS


def _widened(taken: tuple[str, ...], count: int) -> tuple[str, ...] | None:
    """The parameters for so many arguments; None if there cannot be so many."""
    if taken and taken[-1].endswith("..."):
        last = taken[-1].removesuffix("...")
        missing = count - len(taken) + 1
        element = last.removesuffix("[]")
        return (*taken[:-1], *[element] * missing) if missing >= 0 else None
    return taken if len(taken) == count else None


def _fits(taken: str, given: str) -> bool:
    if given == "unknown" or taken == "any":
        return True
    if taken == "one":
        return not given.endswith("[]")
    if taken == "array":
        return given.endswith("[]")
    if taken.endswith("[]") and given == "unknown[]":
        return True
    return taken == given or (taken, given) == ("interval", "time")


@cache
def _signatures() -> dict[str, list[tuple[str, ...]]]:
    text = resources.files(__package__).joinpath("signatures.tsv").read_text("utf-8")
    found = {}
    for line in text.splitlines():
        name, _, listed = line.partition("\t")
        found[name] = [tuple(one.split(",")) if one else () for one in listed.split(";")]
    return found
