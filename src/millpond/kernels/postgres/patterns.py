"""PostgreSQL's advanced regular expressions, translated to Python's `re`.

Law: a match starts at the leftmost place, and is there the longest one, or the shortest one if the first
quantifier with a preference is not greedy.  `re` prefers the first alternative instead: where the two can
disagree (alternatives, or greedy and other quantifiers together) the end is searched for.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache

_CLASSES: dict[str, Callable[[str], bool]] = {
    "alnum": str.isalnum,
    "alpha": str.isalpha,
    "blank": lambda c: c in " \t",
    "cntrl": lambda c: ord(c) < 32 or ord(c) == 127,
    "digit": lambda c: c in "0123456789",
    "graph": lambda c: c.isprintable() and not c.isspace(),
    "lower": str.islower,
    "print": str.isprintable,
    "punct": lambda c: c.isprintable() and not c.isalnum() and not c.isspace(),
    "space": str.isspace,
    "upper": str.isupper,
    "xdigit": lambda c: c in "0123456789abcdefABCDEF",
    "word": lambda c: c.isalnum() or c == "_",
}
_ESCAPES = {
    "a": "\\a",
    "b": "\\x08",
    "e": "\\x1b",
    "f": "\\f",
    "n": "\\n",
    "r": "\\r",
    "t": "\\t",
    "v": "\\v",
}
_SHORT = {"d": "[0-9]", "s": r"\s", "w": r"\w", "D": "[^0-9]", "S": r"\S", "W": r"\W"}
_PLACES = {"A": r"\A", "Z": r"\Z", "m": r"\b(?=\w)", "M": r"\b(?<=\w)", "y": r"\b", "Y": r"\B"}


@cache
def _ranges(name: str) -> str:
    """The characters of a class as ranges, for use within brackets."""
    if name == "digit":
        return "0-9"
    if name not in _CLASSES:
        raise ValueError("invalid regular expression: invalid character class")
    test = _CLASSES[name]
    found, start = [], None
    for code in range(0x3000):
        inside = test(chr(code))
        if inside and start is None:
            start = code
        elif not inside and start is not None:
            found.append((start, code - 1))
            start = None
    shown = "".join(f"\\u{a:04x}" if a == b else f"\\u{a:04x}-\\u{b:04x}" for a, b in found)
    wide = {"alpha", "alnum", "graph", "print", "word"}
    return shown + ("\\u3000-\\U0010ffff" if name in wide else "")


@dataclass(frozen=True)
class Flags:
    """What the letters of a flags argument ask for."""

    every: bool = False  # g
    ignore_case: bool = False
    expanded: bool = False
    literal: bool = False
    dot_stops: bool = False  # . and [^…] do not match a newline
    lines: bool = False  # ^ and $ match at lines


def flags_of(letters: str, *, every: bool = True) -> Flags:
    found: dict[str, bool] = {}
    for letter in letters:
        if letter == "g" and every:
            found["every"] = True
        elif letter == "i":
            found["ignore_case"] = True
        elif letter == "c":
            found["ignore_case"] = False
        elif letter == "x":
            found["expanded"] = True
        elif letter == "t":
            found["expanded"] = False
        elif letter == "q":
            found["literal"] = True
        elif letter in "nm":
            found.update(dot_stops=True, lines=True)
        elif letter == "p":
            found.update(dot_stops=True, lines=False)
        elif letter == "w":
            found.update(dot_stops=False, lines=True)
        elif letter == "s":
            found.update(dot_stops=False, lines=False)
        else:
            raise ValueError(f'invalid regular expression option: "{letter}"')
    return Flags(**found)


class Pattern:
    """A compiled regular expression."""

    def __init__(self, text: str, flags: Flags) -> None:
        translator = _Translator(text, flags)
        made = translator.translated()
        options = re.IGNORECASE if translator.flags.ignore_case else re.NOFLAG
        try:
            self._compiled = re.compile(made, options)
        except (re.error, RecursionError, OverflowError) as error:
            raise ValueError(f"invalid regular expression: {error}") from None
        self.groups = self._compiled.groups
        self._prefers = translator.prefers()

    def search(self, text: str, start: int = 0) -> re.Match[str] | None:
        found = self._compiled.search(text, start)
        if found is None or self._prefers is None:
            return found
        begin = found.start()
        ends = range(len(text), found.end(), -1) if self._prefers == "longest" else range(begin, found.end())
        return next((m for end in ends if (m := self._compiled.fullmatch(text, begin, end))), found)

    def every(self, text: str, start: int = 0) -> Iterator[re.Match[str]]:
        """All matches, as PostgreSQL goes on: after an empty match at the next character."""
        at = start
        while at <= len(text):
            found = self.search(text, at)
            if found is None:
                return
            yield found
            at = found.end() if found.end() > found.start() else found.end() + 1


@lru_cache(1024)
def pattern(text: str, flags: Flags) -> Pattern:
    return Pattern(text, flags)


class _Translator:
    def __init__(self, text: str, flags: Flags) -> None:
        self.text, self.at, self.flags = text, 0, flags
        self._greedy: list[bool] = []  # of every quantifier with a choice
        self._alternatives = self._looks = False

    def prefers(self) -> str | None:
        """What must be searched for beyond what `re` finds; None if it finds the right end by itself."""
        if self._looks:
            return None  # a match that looks ahead cannot be cut off
        if self._alternatives:
            return "longest"
        if len(set(self._greedy)) < 2:
            return None
        return "longest" if self._greedy[0] else "shortest"

    def translated(self) -> str:
        self._director()
        if self.flags.literal:
            return re.escape(self.text[self.at :])
        found = []
        while self.at < len(self.text):
            found.append(self._piece())
        return "".join(found)

    def _director(self) -> None:
        if self.text.startswith("***="):
            self.at, self.flags = 4, Flags(**{**self.flags.__dict__, "literal": True})
            return
        if self.text.startswith("***:"):
            self.at = 4
        options = re.match(r"\(\?([a-z]+)\)", self.text[self.at :])
        if options is not None:
            self.at += options.end()
            chosen = {"ignore_case": "i" in options[1], **{}}
            extra = flags_of(options[1].replace("b", "").replace("e", ""), every=False)
            merged = {**self.flags.__dict__, **{k: v for k, v in extra.__dict__.items() if v}, **{}}
            if "c" in options[1]:
                merged["ignore_case"] = chosen["ignore_case"]
            self.flags = Flags(**merged)

    def _piece(self) -> str:
        char = self.text[self.at]
        if char == "(":
            return self._open()
        if char == "[":
            return self._bracket()
        if char == "\\":
            return self._escape()
        self.at += 1
        if char in "*+?":
            return self._quantified(char)
        if char == "{":
            return self._bound()
        if char == "|":
            self._alternatives = True
            return "|"
        if char == ".":
            return "[^\\n]" if self.flags.dot_stops else "(?s:.)"
        if char == "^":
            return "(?m:^)" if self.flags.lines else r"\A"
        if char == "$":
            self._looks = True
            return "(?m:$)" if self.flags.lines else r"\Z"
        if self.flags.expanded and char.isspace():
            return ""
        if self.flags.expanded and char == "#":
            while self.at < len(self.text) and self.text[self.at] != "\n":
                self.at += 1
            return ""
        return char if char == ")" else re.escape(char)

    def _open(self) -> str:
        for mark in ("(?:", "(?=", "(?!", "(?<=", "(?<!"):
            if self.text.startswith(mark, self.at):
                self.at += len(mark)
                self._looks |= mark != "(?:"
                return mark
        comment = re.compile(r"\(\?#[^)]*\)").match(self.text, self.at)
        if comment is not None:
            self.at = comment.end()
            return ""
        self.at += 1
        return "("

    def _quantified(self, quantifier: str) -> str:
        lazy = self.text[self.at : self.at + 1] == "?"
        self.at += lazy
        self._greedy.append(not lazy)
        return quantifier + ("?" if lazy else "")

    def _bound(self) -> str:
        found = re.compile(r"(\d+)(,(\d*))?\}").match(self.text, self.at)
        if found is None:
            if self.text[self.at : self.at + 1].isdigit():
                raise ValueError("invalid regular expression: invalid repetition count(s)")
            return r"\{"
        if int(found[1]) > 255 or int(found[3] or 0) > 255:
            raise ValueError("invalid regular expression: invalid repetition count(s)")
        self.at = found.end()
        return self._quantified("{" + found[0])

    def _escape(self) -> str:
        char = self.text[self.at + 1 : self.at + 2]
        if not char:
            raise ValueError("invalid regular expression: invalid escape \\ sequence")
        self.at += 2
        if char in _PLACES:
            self._looks = True
            return _PLACES[char]
        if char in _SHORT:
            return _SHORT[char]
        return self._character(char)

    def _character(self, char: str) -> str:
        """An escape that stands for one character; the place is behind its letter."""
        if char in _ESCAPES:
            return _ESCAPES[char]
        if char == "B":
            return r"\\"
        if char == "c":
            self.at += 1
            return f"\\x{ord(self.text[self.at - 1]) & 31:02x}"
        sizes = {"u": 4, "U": 8}
        if char in sizes or char == "x":
            digits = re.compile(r"[0-9a-fA-F]{{{}}}".format(sizes.get(char, "1,255"))).match(
                self.text, self.at
            )
            if digits is None:
                raise ValueError("invalid regular expression: invalid escape \\ sequence")
            self.at = digits.end()
            code = int(digits[0], 16)
            if code > sys.maxunicode:
                raise ValueError("invalid regular expression: invalid escape \\ sequence")
            return re.escape(chr(code))
        if char.isdigit() and char != "0":
            return f"(?:\\{char})"
        if char == "0":
            return "\\x00"
        if char.isalnum():
            raise ValueError("invalid regular expression: invalid escape \\ sequence")
        return re.escape(char)

    def _bracket(self) -> str:
        for mark, place in (("[[:<:]]", r"\b(?=\w)"), ("[[:>:]]", r"\b(?<=\w)")):
            if self.text.startswith(mark, self.at):
                self.at += len(mark)
                self._looks = True
                return place
        self.at += 1
        negated = self.text[self.at : self.at + 1] == "^"
        self.at += negated
        found = []
        first = True
        while True:
            char = self.text[self.at : self.at + 1]
            if not char:
                raise ValueError("invalid regular expression: brackets [] not balanced")
            if char == "]" and not first:
                self.at += 1
                break
            first = False
            found.append(self._in_bracket(char))
        if negated and self.flags.dot_stops:
            found.append("\\n")
        return f"[{'^' if negated else ''}{''.join(found)}]"

    def _in_bracket(self, char: str) -> str:
        named = re.compile(r"\[(:|\.|=)(.*?)\1\]").match(self.text, self.at)
        if named is not None:
            self.at = named.end()
            return _ranges(named[2]) if named[1] == ":" else re.escape(named[2])
        self.at += 1
        if char == "\\":
            letter = self.text[self.at : self.at + 1]
            self.at += 1
            if letter in ("d", "s", "w"):
                return {"d": "0-9", "s": r"\s", "w": r"\w"}[letter]
            if letter in ("D", "S", "W"):
                return {"D": r"\D", "S": r"\S", "W": r"\W"}[letter]
            return self._character(letter)
        return "-" if char == "-" else re.escape(char)
