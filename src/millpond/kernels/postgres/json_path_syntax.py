"""The syntax of SQL/JSON paths: a text becomes a tree of tuples, `("key", "a")`, `("==", left, right)`."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from functools import lru_cache
from typing import Any

Node = tuple[Any, ...]

_TOKEN = re.compile(
    r'\s*(?:(?P<string>"(?:[^"\\]|\\.)*")|(?P<variable>\$(?:[A-Za-z_]\w*|"(?:[^"\\]|\\.)*"))'
    r"|(?P<number>\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?)|(?P<word>[A-Za-z_]\w*)"
    r"|(?P<sign>\*\*|==|!=|<>|<=|>=|&&|\|\||[$@.*?()\[\],{}<>!+\-/%]))"
)
_METHODS = frozenset(["type", "size", "double", "ceiling", "floor", "abs", "keyvalue", "datetime"])
_COMPARISONS = {"==": "==", "!=": "!=", "<>": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}


@lru_cache(512)
def parsed_path(text: str) -> tuple[bool, Node]:
    """Is the path strict, and its tree."""
    parser = _Parser(text)
    strict = parser.word("strict")
    if not strict:
        parser.word("lax")
    tree = parser.predicate()
    if parser.at < len(parser.tokens):
        raise parser.wrong()
    return strict, tree


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[tuple[str, str]] = []
        at = 0
        while at < len(text.rstrip()):
            token = _TOKEN.match(text, at)
            if token is None:
                raise self.wrong(text[at:].strip()[:1])
            assert token.lastgroup is not None
            self.tokens.append((token.lastgroup, token[token.lastgroup]))
            at = token.end()
        self.at = 0

    def wrong(self, near: str | None = None) -> ValueError:
        if near is None:
            near = self.tokens[self.at][1] if self.at < len(self.tokens) else "end of input"
        return ValueError(f'syntax error at or near "{near}" of jsonpath input')

    def peek(self) -> str:
        return self.tokens[self.at][1] if self.at < len(self.tokens) else ""

    def sign(self, *signs: str) -> str:
        if self.at < len(self.tokens) and self.tokens[self.at][0] == "sign" and self.peek() in signs:
            self.at += 1
            return self.tokens[self.at - 1][1]
        return ""

    def word(self, *words: str) -> bool:
        ends = self.at + len(words)
        if [t[1] for t in self.tokens[self.at : ends]] == list(words):
            self.at = ends
            return True
        return False

    def need(self, sign: str) -> None:
        if not self.sign(sign):
            raise self.wrong()

    def predicate(self) -> Node:
        found = self._and()
        while self.sign("||"):
            found = ("or", found, self._and())
        return found

    def _and(self) -> Node:
        found = self._comparison()
        while self.sign("&&"):
            found = ("and", found, self._comparison())
        return found

    def _comparison(self) -> Node:
        if self.sign("!"):
            return ("not", self._comparison())
        if self.word("exists", "("):
            found = self.predicate()
            self.need(")")
            return ("exists", found)
        left = self._sum()
        operator = self.sign(*_COMPARISONS)
        if operator:
            return (_COMPARISONS[operator], left, self._sum())
        if self.word("starts", "with"):
            return ("starts", left, self._sum())
        if self.word("like_regex"):
            pattern = self._string()
            flags = self._string() if self.word("flag") else ""
            return ("like", left, pattern, flags)
        if self.word("is", "unknown"):
            return ("unknown", left)
        return left

    def _string(self) -> str:
        kind, text = self.tokens[self.at] if self.at < len(self.tokens) else ("", "")
        if kind != "string":
            raise self.wrong()
        self.at += 1
        return str(json.loads(text))

    def _sum(self) -> Node:
        found = self._product()
        while operator := self.sign("+", "-"):
            found = (operator, found, self._product())
        return found

    def _product(self) -> Node:
        found = self._unary()
        while operator := self.sign("*", "/", "%"):
            found = (operator, found, self._unary())
        return found

    def _unary(self) -> Node:
        operator = self.sign("+", "-")
        return ("unary", operator, self._unary()) if operator else self._path()

    def _path(self) -> Node:
        found = self._primary()
        while True:
            if self.sign("."):
                found = self._accessor(found)
            elif self.sign("["):
                found = ("subscript", found, self._subscripts())
            elif self.sign("?"):
                self.need("(")
                found = ("filter", found, self.predicate())
                self.need(")")
            else:
                return found

    def _primary(self) -> Node:
        if self.at >= len(self.tokens):
            raise self.wrong()
        kind, text = self.tokens[self.at]
        self.at += 1
        if kind == "sign" and text in "$@":
            return ("root",) if text == "$" else ("current",)
        if kind == "sign" and text == "(":
            found = self.predicate()
            self.need(")")
            return found
        if kind == "string":
            return ("value", json.loads(text))
        if kind == "number":
            return ("value", Decimal(text) if re.search(r"[.eE]", text) else int(text))
        if kind == "variable":
            return ("variable", json.loads(text[1:]) if text[1] == '"' else text[1:])
        if kind == "word" and text in ("true", "false", "null"):
            return ("value", {"true": True, "false": False, "null": None}[text])
        if kind == "word" and text == "last":
            return ("last",)
        self.at -= 1
        raise self.wrong()

    def _accessor(self, of: Node) -> Node:
        if self.sign("*"):
            return ("every", of)
        if self.sign("**"):
            levels: tuple[int, int | None] = (0, None)
            if self.sign("{"):
                first = int(self._number())
                last = int(self._number()) if self.word("to") else first
                self.need("}")
                levels = (first, last)
            return ("deep", of, levels)
        kind, text = self.tokens[self.at] if self.at < len(self.tokens) else ("", "")
        if kind == "string":
            self.at += 1
            return ("key", of, json.loads(text))
        if kind != "word":
            raise self.wrong()
        self.at += 1
        if self.peek() == "(" and text in _METHODS:
            self.at += 1
            argument = self._string() if self.peek() != ")" else ""
            self.need(")")
            return ("method", of, text, argument)
        return ("key", of, text)

    def _number(self) -> str:
        kind, text = self.tokens[self.at]
        if kind != "number":
            raise self.wrong()
        self.at += 1
        return text

    def _subscripts(self) -> tuple[Node, ...]:
        if self.sign("*"):
            self.need("]")
            return ()
        found: list[Node] = []
        while True:
            first = self._sum()
            found.append((first, self._sum()) if self.word("to") else (first, None))
            if not self.sign(","):
                break
        self.need("]")
        return tuple(found)
