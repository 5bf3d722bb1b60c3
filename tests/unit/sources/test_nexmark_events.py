"""The Nexmark generator: a pure function of (config, event number), with the reference's shape of data."""

from __future__ import annotations

import datetime as dt
import doctest
import hashlib
import re
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.errors import InvalidError
from millpond.sources import nexmark_events
from millpond.sources.nexmark_events import SCHEMAS, Kind, NexmarkConfig, generate

KINDS: tuple[Kind, ...] = ("person", "auction", "bid")
CONFIG = NexmarkConfig(seed=7, base_time_ms=1_700_000_000_000)
EVENTS = 200_000


@pytest.fixture(scope="module")
def tables() -> dict[str, pa.Table]:
    return {kind: generate(kind, 0, EVENTS, CONFIG, ["_event", *SCHEMAS[kind].names]) for kind in KINDS}


def ints(table: pa.Table, column: str) -> Any:
    values = table[column]
    return (values.cast(pa.int64()) if pa.types.is_timestamp(values.type) else values).to_numpy()


# --- law: any slice is the same rows ------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    cuts=st.lists(st.integers(0, 3_000), min_size=4, max_size=4).map(sorted),
    base=st.sampled_from([0, 49, 12_345, 4_999_000, 2**40]),
    group=st.sampled_from([0, 1, 7, 50, 1000]),
    seed=st.integers(-3, 2**70),
    data=st.data(),
)
def test_a_slice_is_the_same_rows_of_a_bigger_slice(
    kind: Kind, cuts: list[int], base: int, group: int, seed: int, data: st.DataObject
) -> None:
    config = NexmarkConfig(seed=seed, out_of_order=group)
    names = data.draw(st.lists(st.sampled_from(["_event", *SCHEMAS[kind].names]), min_size=1, unique=True))
    outer_first, first, last, outer_last = (base + cut for cut in cuts)
    small = generate(kind, first, last, config, names)
    big = generate(kind, outer_first, outer_last, config, ["_event", *(n for n in names if n != "_event")])
    inside = pc.and_(pc.greater_equal(big["_event"], first), pc.less(big["_event"], last))
    small.validate(full=True)
    assert small.column_names == names
    assert small.equals(big.filter(inside).select(names))


def test_a_slice_across_blocks_and_chunks_is_the_same_rows() -> None:
    whole = generate("bid", 0, 90_000, CONFIG, ["_event", "extra", "price"])
    assert whole["price"].num_chunks > 1
    part = generate("bid", 8_190, 81_003, CONFIG, ["_event", "extra", "price"])
    inside = pc.and_(pc.greater_equal(whole["_event"], 8_190), pc.less(whole["_event"], 81_003))
    assert part.equals(whole.filter(inside))


@pytest.mark.parametrize("kind", KINDS)
def test_only_the_columns_asked_for_are_computed(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    def boom(_: object) -> pa.Array:
        raise AssertionError("computed a column nobody asked for")

    for name in SCHEMAS[kind].names:
        if name not in ("id", "price", "date_time"):
            monkeypatch.setitem(nexmark_events._MAKERS[kind], name, boom)
    names = ["date_time", "price" if kind == "bid" else "id"]
    assert generate(kind, 0, 500, CONFIG, names).column_names == names
    with pytest.raises(AssertionError):
        generate(kind, 0, 500, CONFIG)


@pytest.mark.parametrize("kind", KINDS)
def test_schema(kind: Kind) -> None:
    assert generate(kind, 0, 60, CONFIG).schema == SCHEMAS[kind]
    empty = generate(kind, 60, 60, CONFIG)
    assert empty.schema == SCHEMAS[kind] and empty.num_rows == 0


def test_seeds_and_fields_are_independent(tables: dict[str, pa.Table]) -> None:
    bids = tables["bid"]
    other = generate("bid", 0, EVENTS, NexmarkConfig(seed=8, base_time_ms=CONFIG.base_time_ms))
    same = np.mean(ints(bids, "price") == ints(other, "price"))
    assert same < 0.01
    logs = np.log(ints(bids, "price"))
    assert abs(np.corrcoef(logs, np.log(ints(other, "price")))[0, 1]) < 0.01
    assert abs(np.corrcoef(logs[1:], logs[:-1])[0, 1]) < 0.01
    hot = np.isin(bids["channel"].to_numpy(), nexmark_events.HOT_CHANNELS)
    assert abs(np.corrcoef(logs, hot)[0, 1]) < 0.01


# --- golden values: the same on every machine, for ever -------------------------

GOLDEN = {
    "person": "1fc0ce46131a5af7539210e218774ad83096d2ec7fc675f38a2dbdd83385acea",
    "auction": "97f94110eccbf5ae81a063dc63933fc862788ab508aed7889035f578a2777785",
    "bid": "b8f3262b66c5971944df7c730aa7311713735224acafc734f587296db77a9ffd",
}


@pytest.mark.parametrize("kind", KINDS)
def test_golden_digest_of_a_hundred_thousand_events(kind: Kind) -> None:
    digest = hashlib.sha256()
    for row in generate(kind, 0, 100_000, CONFIG).to_pylist():
        digest.update(repr(tuple(row.values())).encode())
    assert digest.hexdigest() == GOLDEN[kind]


def test_golden_rows() -> None:
    at = dt.datetime(2023, 11, 14, 22, 21, 40)
    (person,) = generate("person", 5_000_000, 5_000_004, CONFIG).to_pylist()
    assert person.pop("extra").startswith("xpbtxlxcrbivxkzs")
    assert person == {
        "id": 101_000,
        "name": "John Smith",
        "email_address": "iun@qaqq.com",
        "credit_card": "8062 2392 6755 6670",
        "city": "Boise",
        "state": "AZ",
        "date_time": at,
    }
    (auction,) = generate("auction", 5_000_001, 5_000_002, CONFIG).to_pylist()
    assert auction.pop("extra").startswith("hgpislgjplouocbb")
    assert auction == {
        "id": 301_000,
        "item_name": "e f",
        "description": "uevucixz qlz p  dr xeksuuqvejiwvpwhyildruvj lnvqqulcblcejiofwxlburbcesoui",
        "initial_bid": 2267,
        "reserve": 3032,
        "date_time": at,
        "expires": at + dt.timedelta(milliseconds=15),
        "seller": 101_000,
        "category": 13,
    }
    assert generate("bid", 5_000_004, 5_000_006, CONFIG).to_pylist() == [
        {
            "auction": 300_988,
            "bidder": 101_000,
            "price": 2587,
            "channel": "Google",
            "url": "https://www.nexmark.com/x_zs/ymjp/mrqe/item.htm?query=1",
            "date_time": at,
            "extra": "iwbynqlzjskaqdpcptdenxkzsgnqibsakaourklmtfwfjzkrjychybqcyjbm",
        },
        {
            "auction": 300_935,
            "bidder": 100_969,
            "price": 1_839_761,
            "channel": "Baidu",
            "url": "https://www.nexmark.com/cdiy/uor/hmb/item.htm?query=1",
            "date_time": at,
            "extra": "ewwocxcupnncxbpdylppnlnqzontxdtvzuqanxgyboerlisrlqfaznmyvhztdaouvqjkyo",
        },
    ]


# --- numbers and references ------------------------------------------------------


def test_proportions_and_ids(tables: dict[str, pa.Table]) -> None:
    assert [tables[kind].num_rows for kind in KINDS] == [EVENTS // 50, EVENTS // 50 * 3, EVENTS // 50 * 46]
    for kind, offsets in (("person", [0]), ("auction", [1, 2, 3]), ("bid", list(range(4, 50)))):
        assert np.unique(ints(tables[kind], "_event") % 50).tolist() == offsets
    for kind in ("person", "auction"):
        assert (ints(tables[kind], "id") == 1000 + np.arange(tables[kind].num_rows)).all()


def test_people_have_registered_before_they_sell_or_bid(tables: dict[str, pa.Table]) -> None:
    registered = ints(tables["person"], "_event")
    for kind, column in (("auction", "seller"), ("bid", "bidder")):
        person = ints(tables[kind], column) - 1000
        assert person.min() >= 0 and person.max() < len(registered)
        assert (registered[person] < ints(tables[kind], "_event")).all()


def test_bids_go_to_auctions_in_flight_or_about_to_open(tables: dict[str, pa.Table]) -> None:
    auction = ints(tables["bid"], "auction") - 1000
    newest = ints(tables["bid"], "_event") // 50 * 3 + 2
    assert auction.min() >= 0
    assert (auction <= newest + 10).all() and (auction >= newest - 100).all()
    assert (auction > newest).any(), "some auctions are opened after their first bid, as in the reference"
    assert len(np.unique(auction)) > 0.99 * EVENTS * 3 / 50


def test_the_ids_drawn_ahead_are_a_choice() -> None:
    config = NexmarkConfig(seed=7, person_id_lead=10, auction_id_lead=0)
    bids = generate("bid", 0, 100_000, config, ["_event", "auction", "bidder"])
    cycle = ints(bids, "_event") // 50
    ahead = ints(bids, "bidder") - 1000 - cycle
    assert ahead.max() == 10
    assert (ints(bids, "auction") - 1000 <= cycle * 3 + 2).all()


def test_hot_shares(tables: dict[str, pa.Table]) -> None:
    bids, auctions = tables["bid"], tables["auction"]
    late = ints(bids, "_event") > 60_000  # past the start, when almost everything is one of the hot ones
    newest = ints(bids, "_event") // 50 * 3 + 2
    hot_auction = ints(bids, "auction") - 1000 == newest // 100 * 100
    assert np.mean(hot_auction[late]) == pytest.approx(1 / 2 + 1 / 2 / 111, abs=0.005)
    people = ints(bids, "_event") // 50
    hot_bidder = ints(bids, "bidder") - 1000 == np.minimum(people // 100 * 100 + 1, people)
    assert np.mean(hot_bidder[late]) == pytest.approx(3 / 4, abs=0.005)
    people = ints(auctions, "_event") // 50
    hot_seller = ints(auctions, "seller") - 1000 == people // 100 * 100
    assert np.mean(hot_seller[ints(auctions, "_event") > 60_000]) == pytest.approx(3 / 4, abs=0.015)


def test_without_hot_ones_all_are_alike() -> None:
    config = NexmarkConfig(hot_auction_ratio=1, hot_seller_ratio=1, hot_bidder_ratio=1)
    bids = generate("bid", 500_000, 600_000, config, ["auction", "bidder"])
    for column in ("auction", "bidder"):
        counts = pc.value_counts(bids[column].combine_chunks()).field("counts").to_numpy()
        assert counts.max() < 6 * counts.mean()


def test_prices_are_log_uniform_from_one_to_a_million_dollars(tables: dict[str, pa.Table]) -> None:
    for kind, column in (("bid", "price"), ("auction", "initial_bid")):
        price = ints(tables[kind], column)
        assert price.min() >= 100 and price.max() <= 100_000_000
        u = np.sort(np.log10(price / 100) / 6)
        assert np.abs(u - np.linspace(0, 1, len(u))).max() < 0.02
    above = ints(tables["auction"], "reserve") - ints(tables["auction"], "initial_bid")
    assert above.min() >= 100 and above.max() <= 100_000_000


def test_the_price_tables_span_the_whole_range_without_holes() -> None:
    coarse, fine = nexmark_events._price_tables()
    assert coarse[0] == 100 and fine[0] == 1
    u = np.arange(4096)
    assert np.allclose(coarse, 100 * 10 ** (6 * u / 4096), rtol=1e-14, atol=0)
    assert np.allclose(fine, 10 ** (6 * u / 4096**2), rtol=1e-14, atol=0)
    assert (coarse[1:] > coarse[:-1] * fine[-1]).all()


def test_event_times(tables: dict[str, pa.Table]) -> None:
    for kind in KINDS:
        expected = CONFIG.base_time_ms + ints(tables[kind], "_event") // 10
        assert (ints(tables[kind], "date_time") == expected).all()
    slow = generate("bid", 0, 50, NexmarkConfig(base_time_ms=5, events_per_second=3), ["date_time"])
    assert ints(slow, "date_time")[:3].tolist() == [5 + 4000 // 3, 5 + 5000 // 3, 5 + 2000]


def test_auctions_last_up_to_twice_the_time_to_a_hundred_more(tables: dict[str, pa.Table]) -> None:
    length = ints(tables["auction"], "expires") - ints(tables["auction"], "date_time")
    horizon_ms = 100 * 50 / 3 / 10
    assert length.min() == 1 and length.max() <= 2 * horizon_ms + 3
    assert np.mean(length) == pytest.approx(horizon_ms, rel=0.02)


def test_categories_are_five_and_alike(tables: dict[str, pa.Table]) -> None:
    values, counts = np.unique(ints(tables["auction"], "category"), return_counts=True)
    assert values.tolist() == [10, 11, 12, 13, 14]
    assert counts / counts.sum() == pytest.approx(np.full(5, 0.2), abs=0.02)


# --- disorder ---------------------------------------------------------------------


def test_disorder_moves_events_only_within_their_group() -> None:
    group = 1000
    shuffled = NexmarkConfig(seed=7, out_of_order=group)
    plain = NexmarkConfig(seed=7)
    for kind in KINDS:
        late = generate(kind, 3 * group, 7 * group, shuffled, ["_event", *SCHEMAS[kind].names])
        arrival = ints(late, "_event")
        assert (np.diff(arrival) > 0).all()
        born = (ints(late, "date_time") - plain.base_time_ms) * 10
        assert (born // group == arrival // group).all(), "not outside"
        assert (np.diff(born) < 0).any(), "really shuffled"
        in_order = generate(kind, 3 * group, 7 * group, plain)
        assert sorted(map(str, late.drop_columns("_event").to_pylist())) == sorted(
            map(str, in_order.to_pylist())
        )


# --- text ---------------------------------------------------------------------------


def every(table: pa.Table, column: str, pattern: str) -> bool:
    return all(re.fullmatch(pattern, text) for text in table[column].to_pylist())


def test_person_text(tables: dict[str, pa.Table]) -> None:
    people = tables["person"]
    assert set(people["state"].to_pylist()) == {"AZ", "CA", "ID", "OR", "WA", "WY"}
    assert len(set(people["city"].to_pylist())) == 10
    assert len(set(people["name"].to_pylist())) == 99
    assert every(people, "name", r"[A-Z][a-z]+ [A-Z][a-z]+")
    assert every(people, "email_address", r"[a-z]{3,6}@[a-z]{3,4}\.com")
    assert every(people, "credit_card", r"\d{4} \d{4} \d{4} \d{4}")
    assert len(set(people["credit_card"].to_pylist())) == people.num_rows


def test_auction_text(tables: dict[str, pa.Table]) -> None:
    auctions = tables["auction"]
    assert every(auctions, "item_name", r"[a-z][a-z ]{1,17}[a-z]")
    assert every(auctions, "description", r"[a-z][a-z ]{1,97}[a-z]")
    text = "".join(auctions["description"].to_pylist())
    assert text.count(" ") / len(text) == pytest.approx(1 / 13, abs=0.01)


def test_channels_and_urls(tables: dict[str, pa.Table]) -> None:
    bids = tables["bid"]
    channels, urls = bids["channel"].to_pylist(), bids["url"].to_pylist()
    hot = [channel in ("Google", "Facebook", "Baidu", "Apple") for channel in channels]
    assert np.mean(hot) == pytest.approx(0.5, abs=0.01)
    assert np.mean([channel == "Apple" for channel in channels]) == pytest.approx(1 / 8, abs=0.01)
    assert len(set(channels)) == 10_004
    assert len(set(zip(channels, urls, strict=True))) == 10_004, "a channel keeps its url"
    assert every(
        bids, "url", r"https://www\.nexmark\.com(/[a-z_]{3,4}){3}/item\.htm\?query=1(&channel_id=\d+)?"
    )
    tagged = ["channel_id=" in url for url, is_hot in zip(urls, hot, strict=True) if not is_hot]
    assert np.mean(tagged) == pytest.approx(0.9, abs=0.02)
    assert not any("channel_id=" in url for url, is_hot in zip(urls, hot, strict=True) if is_hot)


def test_extra_brings_rows_to_their_average_size(tables: dict[str, pa.Table]) -> None:
    def size(table: pa.Table, fixed: int, *columns: str) -> Any:
        return fixed + sum(pc.binary_length(table[column]).to_numpy() for column in columns)

    person = size(tables["person"], 8, "name", "email_address", "credit_card", "city", "state", "extra")
    auction = size(tables["auction"], 48, "item_name", "description", "extra")
    bid = size(tables["bid"], 32, "extra")
    for sizes, average in ((person, 200), (auction, 500), (bid, 100)):
        assert np.mean(sizes) == pytest.approx(average, rel=0.01)
        assert sizes.min() > 0.75 * average and sizes.max() < 1.25 * average
    for kind in KINDS:
        assert every(tables[kind], "extra", "[a-z]*")
    letters, counts = np.unique(
        list("".join(tables["bid"]["extra"].to_pylist()[:20_000])), return_counts=True
    )
    assert len(letters) == 26 and counts.min() > 0.8 * counts.mean()
    assert len(set(tables["bid"]["extra"].to_pylist())) == tables["bid"].num_rows


def test_rows_beyond_the_average_size_get_no_extra() -> None:
    small = NexmarkConfig(person_bytes=10, auction_bytes=0, bid_bytes=33)
    for kind in KINDS:
        assert max(map(len, generate(kind, 0, 500, small, ["extra"])["extra"].to_pylist())) <= 1


# --- refusals -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        lambda: generate("seller", 0, 1, CONFIG),  # type: ignore[arg-type]
        lambda: generate("bid", -1, 1, CONFIG),
        lambda: generate("bid", 2, 1, CONFIG),
        lambda: generate("bid", 0, 2**60, CONFIG),
        lambda: generate("bid", 0, 1, CONFIG, ["price", "city"]),
        lambda: generate("bid", 0, 1, CONFIG, []),
        lambda: NexmarkConfig(events_per_second=0),
        lambda: NexmarkConfig(hot_auction_ratio=0),
        lambda: NexmarkConfig(out_of_order=953 * 2),
    ],
)
def test_nonsense_is_refused(call: Any) -> None:
    with pytest.raises(InvalidError):
        call()


def test_the_examples_run() -> None:
    assert doctest.testmod(nexmark_events).failed == 0
