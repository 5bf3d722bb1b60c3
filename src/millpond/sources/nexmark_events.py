"""Nexmark, the auction-site benchmark: people, auctions and bids, made from a seed.

Law: an event is a pure function of (config, event number).  All chance comes
from counter-based hashing (splitmix64 of seed, field and number), and all
arithmetic is on integers or exactly specified, so any slice can be made
anywhere, in any order, and is equal to the same rows of a bigger slice on any
machine.

Every 50 events hold 1 person, 3 auctions and 46 bids.  The shape of the data
is that of the reference generator (hot sellers, bidders, auctions and
channels; auctions in flight; log-uniform prices), with three differences, made
on purpose:

* it is seeded: the reference draws from an unseeded generator;
* `bidder` is a person's id: the reference adds the first person id twice, which
  empties the join of bids with people;
* sellers and bidders have registered before they act: the reference also draws
  up to ten people ahead (`person_id_lead=10` brings that back).  Auctions are
  drawn up to ten ahead, as there.

As in the reference, `extra` pads a bid to its average size without counting
channel and url.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.errors import InvalidError

Kind: TypeAlias = Literal["person", "auction", "bid"]
Ints: TypeAlias = npt.NDArray[np.int64]
Words: TypeAlias = npt.NDArray[np.uint64]
Bytes: TypeAlias = npt.NDArray[np.uint8]

_TIME = pa.timestamp("ms")
SCHEMAS: dict[str, pa.Schema] = {
    "person": pa.schema(
        {
            "id": pa.int64(),
            "name": pa.utf8(),
            "email_address": pa.utf8(),
            "credit_card": pa.utf8(),
            "city": pa.utf8(),
            "state": pa.utf8(),
            "date_time": _TIME,
            "extra": pa.utf8(),
        }
    ),
    "auction": pa.schema(
        {
            "id": pa.int64(),
            "item_name": pa.utf8(),
            "description": pa.utf8(),
            "initial_bid": pa.int64(),
            "reserve": pa.int64(),
            "date_time": _TIME,
            "expires": _TIME,
            "seller": pa.int64(),
            "category": pa.int64(),
            "extra": pa.utf8(),
        }
    ),
    "bid": pa.schema(
        {
            "auction": pa.int64(),
            "bidder": pa.int64(),
            "price": pa.int64(),
            "channel": pa.utf8(),
            "url": pa.utf8(),
            "date_time": _TIME,
            "extra": pa.utf8(),
        }
    ),
}

CYCLE = 50  # events until the kinds repeat
_SPAN: dict[Kind, tuple[int, int]] = {"person": (0, 1), "auction": (1, 3), "bid": (4, 46)}
FIRST_PERSON_ID = 1000
FIRST_AUCTION_ID = 1000
FIRST_CATEGORY_ID = 10
CATEGORIES = 5
HOT_BATCH = 100  # one hot auction, seller and bidder in every hundred
HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
CHANNELS = 10_000

_STATES = pa.array(["AZ", "CA", "ID", "OR", "WA", "WY"])
# fmt: off
_CITIES = pa.array([
    "Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland",
    "Bend", "Redmond", "Seattle", "Kent", "Cheyenne",
])
_FIRST_NAMES = (
    "Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter",
)
_LAST_NAMES = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")
# fmt: on
_NAMES = pa.array([f"{first} {last}" for first in _FIRST_NAMES for last in _LAST_NAMES])
_DISORDER = 953  # a prime: event k of a group of n carries number (953 k) mod n, as in the reference
# Rows made at a time, so that the characters of a block stay in the processor's cache, and rows per
# chunk of the resulting table.
_BLOCK_ROWS: dict[Kind, int] = {"person": 4096, "auction": 1024, "bid": 8192}
_CHUNK_ROWS = 65_536


@dataclass(frozen=True)
class NexmarkConfig:
    """The parameters that, together with the event number, determine an event.

    A hot ratio of r sends (r - 1) of r rows to the hot one; 1 means no hot ones.
    """

    seed: int = 1
    base_time_ms: int = 1_436_918_400_000  # 2015-07-15T00:00:00Z
    events_per_second: int = 10_000
    out_of_order: int = 0  # size of the groups within which events are shuffled; 0 and 1: in order
    hot_auction_ratio: int = 2
    hot_seller_ratio: int = 4
    hot_bidder_ratio: int = 4
    in_flight_auctions: int = 100
    active_people: int = 1000
    auction_id_lead: int = 10
    person_id_lead: int = 0
    person_bytes: int = 200
    auction_bytes: int = 500
    bid_bytes: int = 100

    def __post_init__(self) -> None:
        for name, low in (
            ("events_per_second", 1),
            ("out_of_order", 0),
            ("hot_auction_ratio", 1),
            ("hot_seller_ratio", 1),
            ("hot_bidder_ratio", 1),
            ("in_flight_auctions", 0),
            ("active_people", 1),
            ("auction_id_lead", 0),
            ("person_id_lead", 0),
            ("person_bytes", 0),
            ("auction_bytes", 0),
            ("bid_bytes", 0),
        ):
            value = getattr(self, name)
            if not low <= value < 2**30:
                raise InvalidError(
                    f"nexmark {name} is out of range",
                    detail=f"got {value}, allowed {low} to {2**30 - 1}",
                    hint=f"pass another {name}",
                )
        if self.out_of_order > 1 and math.gcd(self.out_of_order, _DISORDER) != 1:
            raise InvalidError(
                "nexmark out_of_order cannot be shuffled without losing events",
                detail=f"got {self.out_of_order}, a multiple of {_DISORDER}",
                hint=f"pass {self.out_of_order + 1}",
            )


def generate(
    kind: Kind, first: int, last: int, config: NexmarkConfig, columns: Sequence[str] | None = None
) -> pa.Table:
    """The rows of one kind among the event numbers [first, last), in order of arrival.

    Only the requested columns are computed.  `_event`, the number under which a row arrived, is returned only
    on request.

    >>> generate("bid", 0, 8, NexmarkConfig(), ["_event", "auction", "bidder"]).to_pylist()[:2]
    [{'_event': 4, 'auction': 1012, 'bidder': 1000}, {'_event': 5, 'auction': 1000, 'bidder': 1000}]
    """
    if kind not in get_args(Kind):
        raise InvalidError("no such nexmark kind", detail=f"got {kind!r}", hint="pass person, auction or bid")
    if not 0 <= first <= last < 2**48:
        raise InvalidError(
            "nexmark event numbers are out of range",
            detail=f"got first {first} and last {last}, allowed 0 <= first <= last < {2**48}",
            hint="pass a range of event numbers",
        )
    makers = _MAKERS[kind]
    names = list(SCHEMAS[kind].names if columns is None else columns)
    if not names:
        raise InvalidError(
            "no nexmark column was asked for",
            detail="got an empty list",
            hint="ask for one, or pass None for all",
        )
    unknown = [name for name in names if name not in makers]
    if unknown:
        raise InvalidError(
            "no such nexmark column",
            detail=f"{kind} has no {', '.join(map(repr, unknown))}",
            hint=f"choose among {', '.join(makers)}",
        )
    schema = pa.schema([_field(kind, name) for name in names])
    chunks: list[pa.RecordBatch] = []
    pending: list[pa.RecordBatch] = []
    for rows in _blocks(kind, first, last, config):
        pending.append(pa.record_batch([makers[name](rows) for name in names], schema=schema))
        if len(pending) * _BLOCK_ROWS[kind] >= _CHUNK_ROWS:
            chunks.append(pa.concat_batches(pending))
            pending = []
    if pending:
        chunks.append(pa.concat_batches(pending))
    return pa.Table.from_batches(chunks, schema=schema)


def _field(kind: Kind, name: str) -> pa.Field:
    return pa.field("_event", pa.int64()) if name == "_event" else SCHEMAS[kind].field(name)


# --- chance -----------------------------------------------------------------

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_LOW_HALF = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


def _mix(z: Words) -> Words:
    """The finalizer of splitmix64, in place."""
    shifted = z >> np.uint64(30)
    z ^= shifted
    z *= np.uint64(0xBF58476D1CE4E5B9)
    np.right_shift(z, np.uint64(27), out=shifted)
    z ^= shifted
    z *= np.uint64(0x94D049BB133111EB)
    np.right_shift(z, np.uint64(31), out=shifted)
    z ^= shifted
    return z


@functools.lru_cache(maxsize=4096)
def _starts(seed: int, field: str, count: int) -> Words:
    """Where the splitmix64 sequences of a field begin, one for each of its words."""
    digests = [hashlib.blake2b(f"{seed}/{field}/{word}".encode(), digest_size=8) for word in range(count)]
    return np.array([int.from_bytes(digest.digest(), "little") for digest in digests], np.uint64)


def _high(word: Words, below: Any) -> Ints:
    """A number in [0, below), below at most 2**32, from the high half of each word."""
    return ((word >> _HALF) * np.asarray(below).astype(np.uint64) >> _HALF).view(np.int64)


def _low(word: Words, below: int) -> Ints:
    """The same from the low half: independent of the high one."""
    return ((word & _LOW_HALF) * np.uint64(below) >> _HALF).view(np.int64)


@dataclass(frozen=True)
class _EventBlock:
    """A block of events of one kind: `position` is when they arrive, `event` who they are."""

    config: NexmarkConfig
    position: Ints
    event: Ints

    def __len__(self) -> int:
        return len(self.event)

    @functools.cached_property
    def counter(self) -> Words:
        return self.event.view(np.uint64) * _GAMMA

    @functools.cached_property
    def cycle(self) -> Ints:
        """The number of complete cycles before each event: also the last person, counted from 0."""
        return self.event // CYCLE

    def word(self, field: str) -> Words:
        return _mix(self.counter + _starts(self.config.seed, field, 1)[0])

    def words(self, field: str, count: int) -> Words:
        return _mix(self.counter[:, None] + _starts(self.config.seed, field, count))

    @functools.cached_property
    def channel(self) -> Ints:
        """Rows of the two arrays of `_channels`: half of them the hot ones at the end."""
        word = self.word("channel")
        rare = _high(word, CHANNELS)
        return np.where(_low(word, 2) > 0, CHANNELS + rare % len(HOT_CHANNELS), rare)


def _blocks(kind: Kind, first: int, last: int, config: NexmarkConfig) -> Iterator[_EventBlock]:
    """The events of a kind among the arrivals [first, last), a block of rows at a time."""
    start, count = _SPAN[kind]
    block = _BLOCK_ROWS[kind]
    group = config.out_of_order
    if group <= 1:

        def before(number: int) -> int:
            return number // CYCLE * count + min(max(number % CYCLE - start, 0), count)

        lo, hi = before(first), before(last)
        for at in range(lo, hi, block):
            nth = np.arange(at, min(at + block, hi))
            cycle = nth // count
            event = nth + (cycle * (CYCLE - count) + start)
            yield _EventBlock(config, event, event)
        return
    stride = block * CYCLE // count
    for at in range(first, last, stride):
        position = np.arange(at, min(at + stride, last))
        inside = position % group
        event = position - inside + inside * _DISORDER % group
        offset = event % CYCLE
        chosen = np.flatnonzero((offset >= start) & (offset < start + count))
        yield _EventBlock(config, position[chosen], event[chosen])


# --- text -------------------------------------------------------------------


def _strings(chars: Bytes, lengths: Ints) -> pa.Array:
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.StringArray.from_buffers(len(lengths), pa.py_buffer(offsets), pa.py_buffer(chars))


def _cut(chars: Bytes, lengths: Ints) -> pa.Array:
    """The first `lengths[i]` characters of row i."""
    return _strings(chars[np.arange(chars.shape[1]) < lengths[:, None]], lengths)


def _random_bytes(rows: _EventBlock, field: str, width: int) -> Words:
    """At least `width` random bytes a row, eight to a word, the lowest byte first."""
    return rows.words(field, -(-width // 8))


def _letters(words: Words) -> Bytes:
    """A letter a..z for every byte: 97 + byte * 26 // 256, on the eight bytes of a word at once."""
    odd = np.uint64(0x00FF00FF00FF00FF)
    evens = ((words & odd) * np.uint64(26) >> np.uint64(8)) & odd
    words = (words >> np.uint64(8) & odd) * np.uint64(26)
    words &= ~odd
    words |= evens
    words += np.uint64(0x6161616161616161)
    return words.astype("<u8", copy=False).view(np.uint8)


@functools.cache
def _alphabet(gap: str) -> Bytes:
    """A character for every byte value: every thirteenth is a gap, the others are letters."""
    letters = [97 + i % 26 for i in range(256)]
    return np.array([ord(gap) if i % 13 == 6 else letter for i, letter in enumerate(letters)], np.uint8)


def _phrase(rows: _EventBlock, field: str, lengths: Ints, width: int, gap: str) -> pa.Array:
    """Words of letters with gaps between, and none at either end."""
    words = _random_bytes(rows, field, width)
    chars = _alphabet(gap)[words.astype("<u8", copy=False).view(np.uint8)]
    ends = _letters(words)
    every = np.arange(len(rows))
    chars[:, 0] = ends[:, 0]
    chars[every, lengths - 1] = ends[every, lengths - 1]
    return _cut(chars, lengths)


def _length(rows: _EventBlock, field: str, limit: int) -> Ints:
    """A string length in [3, limit)."""
    return 3 + _high(rows.word(f"{field}/length"), limit - 3)


def _extra_length(rows: _EventBlock, size: Ints | int, average: int) -> Ints:
    """Padding that brings a row of `size` bytes to the average, give or take a fifth of the padding."""
    wanted: Ints = np.maximum(average - np.broadcast_to(np.asarray(size, np.int64), len(rows)), 0)
    swing = (2 * wanted + 5) // 10
    return wanted - swing + _high(rows.word("extra/length"), 2 * swing)


def _extra(rows: _EventBlock, lengths: Ints) -> pa.Array:
    return _cut(_letters(_random_bytes(rows, "extra", int(lengths.max(initial=1)))), lengths)


# --- values shared by the kinds ---------------------------------------------


def _int64(values: Ints) -> pa.Array:
    return pa.array(values, pa.int64())


def _time(values: Ints) -> pa.Array:
    return pa.array(values, pa.int64()).cast(_TIME)


def _event_time(rows: _EventBlock, ahead: int = 0) -> Ints:
    return rows.config.base_time_ms + (rows.event + ahead) * 1000 // rows.config.events_per_second


_PRICE_STEPS = 4096


@functools.cache
def _price_tables() -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Coarse and fine powers whose product is 100 * 10**(6 u), u a multiple of 2**-24.

    Made with decimals: `pow` of the machine may differ in the last bit, which
    would now and then move a price by one.
    """

    def powers(start: int, steps: int) -> npt.NDArray[np.float64]:
        ratio = Decimal(10) ** (Decimal(6) / steps)
        values, power = [], Decimal(start)
        for _ in range(_PRICE_STEPS):
            values.append(float(power))
            power *= ratio
        return np.array(values)

    with localcontext() as context:
        context.prec = 40
        return powers(100, _PRICE_STEPS), powers(1, _PRICE_STEPS**2)


def _price(rows: _EventBlock, field: str) -> Ints:
    word = rows.word(field)
    coarse, fine = _price_tables()
    power = coarse[_high(word, _PRICE_STEPS)] * fine[_low(word, _PRICE_STEPS)]
    return np.rint(power).astype(np.int64)


def _person(rows: _EventBlock, field: str, hot_ratio: int, hot_nth: int) -> Ints:
    """A person's id: a hot one, or anyone active.  `hot_nth` keeps hot sellers and bidders apart."""
    config = rows.config
    word = rows.word(field)
    people = rows.cycle + 1
    active = np.minimum(people, config.active_people)
    person = people - active + _high(word, active + config.person_id_lead)
    if hot_ratio > 1:
        hot = rows.cycle // HOT_BATCH * HOT_BATCH + hot_nth
        # The first bids of a hundred come before its second person has registered.
        np.minimum(hot, rows.cycle + config.person_id_lead, out=hot)
        person = np.where(_low(word, hot_ratio) > 0, hot, person)
    return person + FIRST_PERSON_ID


# --- person -----------------------------------------------------------------

_CARD_CHARS = 19
_FOUR_DIGITS = np.array([[48 + i // 10**p % 10 for p in (3, 2, 1, 0)] for i in range(10_000)], np.uint8)
_EMAIL_USER, _EMAIL_HOST = 7, 5  # both limits are exclusive


def _pick(rows: _EventBlock, field: str, choices: pa.Array) -> pa.Array:
    return pa.array(_high(rows.word(field), len(choices)))


def _person_text(field: str, choices: pa.Array) -> Callable[[_EventBlock], pa.Array]:
    return lambda rows: choices.take(_pick(rows, field, choices))


def _email(rows: _EventBlock) -> pa.Array:
    user = _length(rows, "email_address/user", _EMAIL_USER)
    host = _length(rows, "email_address/host", _EMAIL_HOST)
    letters = _letters(_random_bytes(rows, "email_address", 16))
    at = _EMAIL_USER - 1
    dot = at + _EMAIL_HOST
    letters[:, at] = ord("@")
    letters[:, dot : dot + 4] = np.frombuffer(b".com", np.uint8)
    kept = np.zeros(letters.shape, np.bool_)
    kept[:, :at] = np.arange(at) < user[:, None]
    kept[:, at] = True
    kept[:, at + 1 : dot] = np.arange(_EMAIL_HOST - 1) < host[:, None]
    kept[:, dot : dot + 4] = True
    return _strings(letters[kept], user + host + 5)


def _credit_card(rows: _EventBlock) -> pa.Array:
    number = (rows.word("credit_card") % np.uint64(10**16)).view(np.int64)
    chars = np.full((len(rows), _CARD_CHARS), ord(" "), np.uint8)
    for nth in range(4):
        chars[:, 5 * nth : 5 * nth + 4] = _FOUR_DIGITS[number // 10_000**nth % 10_000]
    return _strings(chars.reshape(-1), np.full(len(rows), _CARD_CHARS))


def _person_extra(rows: _EventBlock) -> pa.Array:
    size = np.full(len(rows), 8 + 5 + _CARD_CHARS)
    size += _length(rows, "email_address/user", _EMAIL_USER)
    size += _length(rows, "email_address/host", _EMAIL_HOST)
    for field, choices in (("name", _NAMES), ("city", _CITIES), ("state", _STATES)):
        widths = np.array([len(choice) for choice in choices.to_pylist()])
        size += widths[_pick(rows, field, choices).to_numpy()]
    return _extra(rows, _extra_length(rows, size, rows.config.person_bytes))


# --- auction ----------------------------------------------------------------

_ITEM_CHARS, _DESCRIPTION_CHARS = 20, 100  # exclusive


def _auction_id(rows: _EventBlock) -> Ints:
    return rows.event - rows.cycle * (CYCLE - 3) - 1 + FIRST_AUCTION_ID


def _phrase_column(field: str, limit: int) -> Callable[[_EventBlock], pa.Array]:
    return lambda rows: _phrase(rows, field, _length(rows, field, limit), limit - 1, " ")


def _expires(rows: _EventBlock) -> Ints:
    """Open for at least 1 ms and at most twice the time in which `in_flight_auctions` more are opened."""
    now = _event_time(rows)
    horizon = _event_time(rows, rows.config.in_flight_auctions * CYCLE // 3) - now
    limit: Words = np.maximum(2 * horizon, 1).view(np.uint64)
    return now + 1 + (rows.word("expires") % limit).view(np.int64)


def _auction_extra(rows: _EventBlock) -> pa.Array:
    size = 48 + _length(rows, "item_name", _ITEM_CHARS) + _length(rows, "description", _DESCRIPTION_CHARS)
    return _extra(rows, _extra_length(rows, size, rows.config.auction_bytes))


# --- bid --------------------------------------------------------------------


def _bid_auction(rows: _EventBlock) -> Ints:
    config = rows.config
    word = rows.word("auction")
    newest = rows.cycle * 3 + 2
    oldest = np.maximum(newest - config.in_flight_auctions, 0)
    auction = oldest + _high(word, newest - oldest + (1 + config.auction_id_lead))
    if config.hot_auction_ratio > 1:
        hot = newest // HOT_BATCH * HOT_BATCH
        auction = np.where(_low(word, config.hot_auction_ratio) > 0, hot, auction)
    return auction + FIRST_AUCTION_ID


@functools.lru_cache(maxsize=8)
def _channels(seed: int) -> tuple[pa.Array, pa.Array]:
    """The names and urls of all channels, the hot ones last.  A channel keeps its url."""
    numbers = np.arange(CHANNELS + len(HOT_CHANNELS))
    rows = _EventBlock(NexmarkConfig(seed=seed), numbers, numbers)
    paths = [_phrase(rows, f"url/{i}", _length(rows, f"url/{i}", 5), 4, "_").to_pylist() for i in range(3)]
    tagged = (_high(rows.word("url/tagged"), 10) > 0) & (numbers < CHANNELS)
    names = [f"channel-{i}" for i in range(CHANNELS)] + list(HOT_CHANNELS)
    urls = [
        f"https://www.nexmark.com/{a}/{b}/{c}/item.htm?query=1"
        + (f"&channel_id={_reversed_bits(number)}" if tag else "")
        for number, (a, b, c, tag) in enumerate(zip(*paths, tagged.tolist(), strict=True))
    ]
    return pa.array(names), pa.array(urls)


def _reversed_bits(number: int) -> int:
    """The magnitude of a 32-bit number read backwards, as the reference spreads its channel ids."""
    backwards = int(f"{number:032b}"[::-1], 2)
    return min(backwards, 2**32 - backwards)


def _channel_column(which: int) -> Callable[[_EventBlock], pa.Array]:
    return lambda rows: _channels(rows.config.seed)[which].take(pa.array(rows.channel))


# --- which function makes which column --------------------------------------

_Maker: TypeAlias = Callable[[_EventBlock], pa.Array]


def _ints(make: Callable[[_EventBlock], Ints]) -> _Maker:
    return lambda rows: _int64(make(rows))


_COMMON: dict[str, _Maker] = {
    "date_time": lambda rows: _time(_event_time(rows)),
    "_event": lambda rows: _int64(rows.position),
}
_MAKERS: dict[Kind, dict[str, _Maker]] = {
    "person": {
        "id": _ints(lambda rows: rows.cycle + FIRST_PERSON_ID),
        "name": _person_text("name", _NAMES),
        "email_address": _email,
        "credit_card": _credit_card,
        "city": _person_text("city", _CITIES),
        "state": _person_text("state", _STATES),
        "extra": _person_extra,
        **_COMMON,
    },
    "auction": {
        "id": _ints(_auction_id),
        "item_name": _phrase_column("item_name", _ITEM_CHARS),
        "description": _phrase_column("description", _DESCRIPTION_CHARS),
        "initial_bid": _ints(lambda rows: _price(rows, "initial_bid")),
        "reserve": _ints(lambda rows: _price(rows, "initial_bid") + _price(rows, "reserve")),
        "expires": lambda rows: _time(_expires(rows)),
        "seller": _ints(lambda rows: _person(rows, "seller", rows.config.hot_seller_ratio, 0)),
        "category": _ints(lambda rows: FIRST_CATEGORY_ID + _high(rows.word("category"), CATEGORIES)),
        "extra": _auction_extra,
        **_COMMON,
    },
    "bid": {
        "auction": _ints(_bid_auction),
        "bidder": _ints(lambda rows: _person(rows, "bidder", rows.config.hot_bidder_ratio, 1)),
        "price": _ints(lambda rows: _price(rows, "price")),
        "channel": _channel_column(0),
        "url": _channel_column(1),
        "extra": lambda rows: _extra(rows, _extra_length(rows, 32, rows.config.bid_bytes)),
        **_COMMON,
    },
}
