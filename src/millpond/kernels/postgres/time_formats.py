"""The formats of to_char, to_date and to_timestamp: a text taken apart into fields and other text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

# Longer names first, so that MONTH is not MON and TH.
_NAMES = (
    *("SSSSS", "SSSS", "Y,YYY", "MONTH", "Month", "month", "A.D.", "a.d.", "B.C.", "b.c.", "P.M.", "p.m."),
    *("A.M.", "a.m.", "IYYY", "IDDD", "YYYY", "HH24", "HH12", "DAY", "Day", "day", "MON", "Mon", "mon"),
    *("DDD", "IYY", "YYY", "TZH", "TZM", "FF1", "FF2", "FF3", "FF4", "FF5", "FF6", "AD", "ad", "BC", "bc"),
    *("PM", "pm", "AM", "am", "CC", "DD", "DY", "Dy", "dy", "HH", "IW", "ID", "IY", "MI", "MM", "MS", "OF"),
    *("RM", "rm", "SS", "TZ", "tz", "US", "WW", "YY", "D", "I", "J", "Q", "W", "Y"),
)
_ALTERNATIVES = "|".join(re.escape(n) for n in _NAMES)
_PART = re.compile(
    rf'"((?:[^"\\]|\\.)*)"?|(FM|TM|FX)|({_ALTERNATIVES})|(?i:({_ALTERNATIVES}))|\\(.)|(.)', re.DOTALL
)
_SUFFIX = re.compile(r"TH|th|SP|sp")


@dataclass(frozen=True)
class FormatPart:
    """A field with its modifiers, or text that stands for itself."""

    name: str = ""
    text: str = ""
    fill: bool = True  # not FM
    ordinal: str = ""  # TH or th
    quoted: bool = False


@lru_cache(256)
def parts_of(pattern: str) -> tuple[FormatPart, ...]:
    """
    >>> [p.name or p.text for p in parts_of("FMDDth Month")]
    ['DD', ' ', 'Month']
    """
    found: list[FormatPart] = []
    at, fill = 0, True
    while at < len(pattern):
        match = _PART.match(pattern, at)
        assert match is not None
        at = match.end()
        quoted, modifier, exact, other, escaped, plain = match.groups()
        if quoted is not None:
            found.append(FormatPart(text=re.sub(r"\\(.)", r"\1", quoted), quoted=True))
        elif modifier:
            fill = fill and modifier != "FM"
            continue
        elif exact or other:
            name = exact or other.upper()
            suffix = _SUFFIX.match(pattern, at)
            at = suffix.end() if suffix else at
            ordinal = suffix[0] if suffix and suffix[0].upper() == "TH" else ""
            found.append(FormatPart(name=name, fill=fill, ordinal=ordinal))
        else:
            found.append(FormatPart(text="\\" if escaped and escaped != '"' else escaped or plain))
            if escaped and escaped != '"':
                at -= 1
        fill = True
    return tuple(found)


def is_exact(pattern: str) -> bool:
    """Does the pattern ask for exact separators (FX)?"""
    return pattern.upper().startswith("FX")
