"""Answers reads of one key where their messages arrive, without waking the task of the connection.

A driver sends Bind, Describe, Execute and Sync of a prepared statement at once, some with a Parse before.  If
the statement is known to read one key and its table is open, the answer needs no waiting.

Law: it gives the bytes that `Conversation` gives for the same messages.  Whatever is not exactly such a group
is left to it, untouched, and so is a group whose answer would be an error.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from millpond.errors import MillpondError
from millpond.server.pgwire import messages as m
from millpond.server.pgwire.conversation import Conversation
from millpond.server.pgwire.outcome import PgStatement
from millpond.server.pgwire.parameter_values import value_of
from millpond.server.point_reads import NotOpenError

TURN_GROUPS = 16  # groups of a pipelining client that are answered before others have their turn
GROUP_BYTES_MAX = 1 << 16
_EXECUTE = b"E\0\0\0\x09\0\0\0\0\0"  # all rows of the unnamed portal
_DESCRIBE = b"D\0\0\0\x06P\0"
_SYNC = b"S\0\0\0\x04"
_ENDS = ((_DESCRIBE + _EXECUTE + _SYNC, True), (_EXECUTE + _SYNC, False))
_READY = m.ready("I")
_NO_ROW, _ONE_ROW = m.command_complete("SELECT 0"), m.command_complete("SELECT 1")
_int32 = struct.Struct("!i").unpack_from
_uint16 = struct.Struct("!H").unpack_from


class SentBind(NamedTuple):
    statement: bytes
    formats: bytes  # as they were sent: two bytes each
    values: list[bytes | None]
    result_formats: bytes


class QuickReads:
    """Answers the reads of one connection while its task waits for a message."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._runner = conversation.runner
        self._transport = conversation.transport

    def answer(self, data: bytearray) -> int:
        """Answer the groups at the start of the data; returns their size in bytes."""
        at = 0
        conversation = self._conversation
        if conversation.is_skipping or conversation.joined or self._runner.client.in_transaction:
            return 0
        for _ in range(TURN_GROUPS):
            if not data.startswith((b"B", b"P"), at) or not self._transport.may_write:
                break
            size = self._group(bytes(data[at : at + GROUP_BYTES_MAX]))
            if not size:
                break
            at += size
        if at:
            self._transport.send()
        return at

    def _group(self, data: bytes) -> int:
        """Answer one group; returns its size, or 0 if it cannot be answered here."""
        begin, parsed = 0, None
        if data[0] == 80:  # Parse
            parsed = self._same_as_before(data)
            begin = 1 + _int32(data, 1)[0]
            if parsed is None or data[begin : begin + 1] != b"B":
                return 0
        if len(data) < begin + 5:
            return 0
        end = begin + 1 + int(_int32(data, begin + 1)[0])
        described = next((pair for pair in _ENDS if data.startswith(pair[0], end)), None)
        bound = None if described is None or end < begin else _bind(data[begin + 5 : end])
        if described is None or bound is None or (parsed is not None and bound.statement):
            return 0
        prepared = parsed or self._runner.prepared.get(bound.statement.decode("utf-8", "replace"))
        answer = None if prepared is None else self._answered(prepared, bound, described[1])
        if answer is None:
            return 0
        if parsed is not None:
            parsed.shape = None  # it is a new statement, perhaps of another program
            self._transport.put(m.PARSE_COMPLETE)
        self._conversation.forget_portals()
        self._transport.put(answer)
        return end + len(described[0])

    def _same_as_before(self, data: bytes) -> PgStatement | None:
        """The unnamed statement, if this Parse repeats the last one."""
        last = self._runner.prepared.get("")
        if last is None or not last.parse or not data.startswith(last.parse):
            return None
        return last

    def _answered(self, prepared: PgStatement, bound: SentBind, described: bool) -> bytes | None:
        read, form = prepared.read, prepared.point_form()
        if read is None or form is None:
            return None
        plan, types = form.plan, form.types
        formats = _formats(bound.formats, len(types))
        shown = _formats(bound.result_formats, len(plan.types))
        if formats is None or shown is None or len(types) != len(bound.values):
            return None
        try:
            params = [value_of(*one) for one in zip(bound.values, types, formats, strict=True)]
            row = self._runner.client.point_row(read, params, in_loop=True)
        except (NotOpenError, MillpondError):
            return None  # `Conversation` opens the table, or says what is wrong
        if row is None:
            return None
        self._runner.said = read.text
        parts = [m.BIND_COMPLETE]
        if described:
            columns = list(zip(plan.names, plan.types, strict=True))
            parts.append(prepared.row_description(columns, shown))
        if row.cells is not None:
            parts.append(prepared.encoder(plan, shown).message(row.cells))
        parts += (_NO_ROW if row.cells is None else _ONE_ROW, _READY)
        return b"".join(parts)


def _bind(body: bytes) -> SentBind | None:
    """A Bind of the unnamed portal; None if it is another one or not well formed."""
    try:
        name_end = body.index(b"\0", 1)
        if body[0]:
            return None
        at = name_end + 1
        formats, at = _short_list(body, at)
        values: list[bytes | None] = []
        (count,) = _uint16(body, at)
        at += 2
        for _ in range(count):
            (size,) = _int32(body, at)
            at += 4
            values.append(None if size == -1 else body[at : at + size])
            at += max(size, 0)
            if size < -1:
                return None
        result_formats, at = _short_list(body, at)
    except (ValueError, struct.error):
        return None
    return SentBind(body[1:name_end], formats, values, result_formats) if at == len(body) else None


def _short_list(body: bytes, at: int) -> tuple[bytes, int]:
    end = at + 2 + 2 * int(_uint16(body, at)[0])
    return body[at + 2 : end], end


def _formats(sent: bytes, count: int) -> tuple[int, ...] | None:
    """One format for each value, or none at all; None if the client sent another number of them."""
    found = _FORMATS.get(sent)
    if found is not None:  # none, or one for all
        return found * count
    if len(sent) != 2 * count or sent[::2].strip(b"\0") or sent[1::2].strip(b"\0\1"):
        return None
    return tuple(sent[1::2])


_FORMATS: dict[bytes, tuple[Any, ...]] = {b"": (0,), b"\0\0": (0,), b"\0\1": (1,)}
