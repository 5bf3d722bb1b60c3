"""WITH (name = value, …): the options of a definition.  Unknown options are refused, never ignored."""

from __future__ import annotations

from collections.abc import Sequence

from millpond.secret_references import reference_to
from millpond.sql.text.parse import SqlFragment, Words, closest_name


class Options(dict[str, str]):
    """Option values by name, in lower case; `parts` has the fragment of each option."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: dict[str, SqlFragment] = {}


def read_options(words: Words) -> Options:
    """Parse `(name = value, …)`; a name may have dots."""
    inner, words.at = words.fragment.bracket(words.at)
    found = Options()
    for part in inner.split() if inner.tokens else []:
        if not part.tokens:
            inner.fail("an option is missing between commas", 0, "write WITH (name = 'value', …)")
        each = Words(part)
        key = each.text()
        while each.take("."):
            key += "." + each.text()
        each.need("=")
        key = key.lower()
        if key in found:
            part.fail(f"option {key!r} is given twice")
        found[key] = _value(each)
        found.parts[key] = part
        each.end()
    return found


def _value(words: Words) -> str:
    """An option's value; `secret name` refers to a secret of the pond."""
    if words.fragment.word(words.at) == "SECRET" and len(words.rest) > 1 and words.take("SECRET"):
        return reference_to(words.name("name of the secret"))
    return words.text()


def only(options: Options, known: Sequence[str], what: str) -> None:
    """Refuse options that `what` does not have; a known name ending in `.…` is a prefix."""
    families = tuple(name.removesuffix("…") for name in known if name.endswith("…"))
    for name, part in options.items():
        if name in known or name.startswith(families):
            continue
        listed = f"options of {what} are {', '.join(known)}"
        near = closest_name(name, [n for n in known if not n.endswith("…")])
        options.parts[name].fail(f"{what} has no option {name!r}", 0, f"{near} {listed}" if near else listed)
        raise AssertionError(part)


def no_options(words: Words, what: str) -> None:
    """Refuse WITH (…) where a definition takes no options."""
    if words.fragment.has(words.at, "WITH", "("):
        at = words.at
        words.at += 1
        given = read_options(words)
        words.at = at
        name = next(iter(given), None)
        words.fail(
            f"{what} has no option {name!r}" if name else f"{what} has no options", f"{what} takes none"
        )
