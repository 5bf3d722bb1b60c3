"""Manifests: they come back as written, say clearly when they cannot, and keep their rules and their size."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.errors import DataError, InternalError
from millpond.state.checksummed_json import sealed
from millpond.state.manifest.listing import PageCache, live_runs
from millpond.state.manifest.manifest import (
    FORMAT,
    Manifest,
    Page,
    RunId,
    check,
    decode_page,
    encode_page,
    epoch_of,
    fold,
    is_retained,
    manifest_name,
    ref_from_json,
    ref_to_json,
    run_id,
)
from millpond.state.runs.run_ref import RunRef
from millpond.state.store.memory_store import MemoryStore

names = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=8)
hashes = st.integers(0, 2**64 - 1)
refs = st.builds(
    RunRef,
    table=names,
    file=names,
    segment=st.integers(0, 9),
    bucket=st.none() | st.integers(-(2**40), 2**40),
    lo=st.integers(-9, 10**6),
    hi=st.integers(-9, 10**6),
    rows=st.integers(0, 2**40),
    bytes=st.integers(0, 2**50),
    h_min=hashes,
    h_max=hashes,
    kind=st.sampled_from(["delta", "merge"]),
)
run_ids = st.tuples(names, st.integers(0, 9), hashes)
jsonish = st.recursive(
    st.none() | st.booleans() | st.integers() | names,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=5,
)
manifests = st.builds(
    Manifest,
    pond=names,
    epoch=st.integers(0, 10**9),
    token=st.integers(1, 10**6),
    nonce=names,
    now_us=st.integers(0, 2**62),
    kind=st.sampled_from(["create", "takeover", "epoch", "change", "rollback", "fork"]),
    catalog=st.none() | names,
    parallelism=st.integers(1, 32768),
    positions=st.dictionaries(names, jsonish, max_size=3),
    watermarks=st.dictionaries(names, st.fixed_dictionaries({"max": st.integers(), "bound": st.integers()})),
    pages=st.lists(st.builds(Page, names, st.integers(0, 256)), max_size=3).map(tuple),
    recent=st.lists(refs, max_size=3).map(tuple),
    gone=st.lists(run_ids, max_size=3).map(tuple),
    added=st.lists(refs, max_size=3).map(tuple),
    removed=st.lists(run_ids, max_size=3).map(tuple),
    cursors=st.dictionaries(names, st.integers(0, 10**6), max_size=2),
    counts=st.dictionaries(names, st.integers(0, 10**9), max_size=2),
    floor=st.integers(0, 10**6),
    parent_nonce=st.none() | names,
    roots=st.dictionaries(names, names, max_size=2),
    restores=st.none() | st.integers(0, 10**6),
    admitted=st.dictionaries(names, jsonish, max_size=2),
    metrics=st.dictionaries(names, jsonish, max_size=2),
    savepoints=st.dictionaries(names, st.integers(0, 10**6), max_size=2),
)


@settings(max_examples=60, deadline=None)
@given(manifests)
def test_a_manifest_comes_back(manifest: Manifest) -> None:
    raw = manifest.encode()
    assert Manifest.decode(raw) == manifest
    assert Manifest.decode(raw).encode() == raw


@settings(max_examples=40, deadline=None)
@given(st.lists(refs, max_size=5))
def test_pages_come_back(found: list[RunRef]) -> None:
    assert decode_page(encode_page(found), name="p") == tuple(found)
    assert [ref_from_json(json.loads(json.dumps(ref_to_json(r)))) for r in found] == found


@pytest.fixture
def one() -> Manifest:
    return Manifest(
        pond="p", epoch=41, token=3, nonce="n", now_us=7, recent=(ref(1, 2),), positions={"in": 1234567}
    )


def ref(file: int, lo: int, **changes: Any) -> RunRef:
    made = RunRef("t", f"runs/1/{file}", 0, None, lo, lo, 1, 100, 0, 2**64 - 1, "delta")
    return replace(made, **changes)


def test_a_manifest_is_plain_json(one: Manifest) -> None:
    data = json.loads(one.encode())
    assert data["epoch"] == 41
    assert data["positions"] == {"in": 1234567}
    assert data["recent"][0][:2] == ["t", "runs/1/1"]


def test_a_newer_format_says_to_upgrade(one: Manifest) -> None:
    raw = replace(one, format=FORMAT + 1).encode()
    with pytest.raises(DataError, match="written by a newer version of millpond") as caught:
        Manifest.decode(raw, name="manifests/41")
    assert caught.value.detail == f"manifests/41 has format {FORMAT + 1}, this version reads up to {FORMAT}"
    assert "upgrade" in (caught.value.hint or "")


def test_a_newer_format_is_told_before_anything_else_is_understood(one: Manifest) -> None:
    with pytest.raises(DataError, match="newer version"):
        Manifest.decode(b'{"format":99,"whatever":[1]}')
    with pytest.raises(DataError, match="newer version"):
        decode_page(b'{"format":99,"lines":[1]}', name="pages/1")


@pytest.mark.parametrize(
    "raw",
    [b"", b"{", b"[]", b"null", b"7", b"\xff\xfe\x00", b'{"format":1}', b'{"format":"1"}', b'{"epoch":1}'],
)
def test_what_is_no_manifest_is_a_data_error(raw: bytes) -> None:
    with pytest.raises(DataError, match="manifests/7 cannot be read") as caught:
        Manifest.decode(raw, name="manifests/7")
    assert caught.value.hint
    with pytest.raises(DataError, match="pages/7 cannot be read"):
        decode_page(raw, name="pages/7")


def test_no_damage_goes_unseen(one: Manifest) -> None:
    """A flipped bit in a number is still JSON: only a checksum can tell."""
    rng = random.Random(1)
    for raw, decode in ((one.encode(), Manifest.decode), (encode_page([ref(1, 2)]), decode_page)):
        for _ in range(150):
            at = rng.randrange(len(raw))
            bad = raw[:at] + bytes([raw[at] ^ (1 << rng.randrange(8))]) + raw[at + 1 :]
            with pytest.raises(DataError):
                decode(bad, name="m")  # type: ignore[operator]
        for end in (0, 1, len(raw) // 2, len(raw) - 1):
            with pytest.raises(DataError):
                decode(raw[:end], name="m")  # type: ignore[operator]


def test_fields_that_are_not_known_are_ignored(one: Manifest) -> None:
    data = {**json.loads(one.encode()), "later": 1}
    del data["xxh3"]
    assert Manifest.decode(sealed(data)) == one


def test_names_and_what_is_kept(one: Manifest) -> None:
    assert manifest_name(41) == "manifests/0000000000000041"
    assert epoch_of(manifest_name(41)) == 41
    assert is_retained(replace(one, floor=40), 40)
    assert not is_retained(replace(one, floor=40), 39)
    assert not is_retained(one, 42)
    assert is_retained(replace(one, floor=40, savepoints={"s": 12}), 12)


# -- rules ------------------------------------------------------------------------


def child_of(parent: Manifest, **changes: Any) -> Manifest:
    made = replace(parent, epoch=parent.epoch + 1, nonce="m", parent_nonce=parent.nonce)
    return replace(made, **changes)


MARKED = {"w": {"max": 9, "bound": 5}}


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"epoch": 43}, "epoch follows its parent"),
        ({"epoch": 41}, "epoch follows its parent"),
        ({"pond": "q"}, "pond stays the same"),
        ({"token": 2}, "token never falls"),
        ({"now_us": 6}, "time never falls"),
        ({"floor": 1}, "floor never falls"),
        ({"parent_nonce": "x"}, "parent is the one"),
        ({"gathered": {"s": 9}}, "a group of epochs keeps its end"),
        ({"watermarks": {"w": {"max": 9, "bound": 4}}}, "watermarks only rise"),
        ({"watermarks": {"w": {"max": 9, "bound": None}}}, "watermarks only rise"),
    ],
)
def test_rules_are_checked_by_name(one: Manifest, changes: dict[str, Any], rule: str) -> None:
    parent = replace(one, floor=2, watermarks=MARKED, cursors={"s": 1}, gathered={"s": 3})
    check(child_of(parent), parent)
    check(child_of(parent, gathered={"s": 9}, cursors={"s": 3}), parent)
    with pytest.raises(InternalError, match=rule):
        check(child_of(parent, **changes), parent)


def test_a_rollback_may_lower_watermarks_and_nothing_else(one: Manifest) -> None:
    parent = replace(one, floor=2, watermarks=MARKED)
    check(child_of(parent, kind="rollback", watermarks={"w": {"max": 1, "bound": 1}}), parent)
    with pytest.raises(InternalError, match="time never falls"):
        check(child_of(parent, kind="rollback", now_us=1), parent)


def test_the_first_manifest_is_epoch_zero(one: Manifest) -> None:
    check(replace(one, epoch=0), None)
    with pytest.raises(InternalError, match="must be epoch 0"):
        check(one, None)


# -- the listing --------------------------------------------------------------------


class Lister:
    """A listing as a chain of manifests keeps it, beside a plain dict."""

    def __init__(self, fold_at: int, page_runs: int) -> None:
        self.pages: tuple[Page, ...] = ()
        self.recent: tuple[RunRef, ...] = ()
        self.gone: tuple[RunId, ...] = ()
        self.written: dict[str, tuple[RunRef, ...]] = {}
        self.bytes = 0
        self.model: dict[RunId, RunRef] = {}
        self.options = {"fold_at": fold_at, "page_runs": page_runs}

    def change(self, added: list[RunRef], removed: list[RunId]) -> None:
        new = fold(
            self.pages,
            self.recent,
            self.gone,
            added,
            removed,
            read_page=self.written.__getitem__,
            name_page=lambda: f"pages/{len(self.written)}-{random.getrandbits(32)}",
            **self.options,
        )
        self.pages, self.recent, self.gone = new.pages, new.recent, new.gone
        for name, found in new.new_pages:
            assert name not in self.written
            self.written[name] = found
            self.bytes += len(encode_page(found))
        named = Manifest("p", 1, 1, "n", 1, pages=self.pages, recent=self.recent, gone=self.gone)
        self.bytes += len(named.encode())
        for ident in removed:
            del self.model[ident]
        self.model.update({run_id(r): r for r in added})

    def check(self) -> None:
        store = MemoryStore()
        for page in self.pages:
            assert page.runs == len(self.written[page.name]) <= self.options["page_runs"]
            store.put_new(page.name, encode_page(self.written[page.name]))
        found = live_runs(self.pages, self.recent, self.gone, PageCache(store))
        assert len(found) == len(self.model)
        assert {run_id(r): r for r in found} == self.model
        assert len(self.recent) + len(self.gone) <= self.options["fold_at"]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([(4, 8), (10, 5), (1, 1), (96, 256)]))
def test_a_listing_stays_exact(seed: int, sizes: tuple[int, int]) -> None:
    rng = random.Random(seed)
    lister = Lister(*sizes)
    number = 0
    for _ in range(30):
        added = []
        for _ in range(rng.randrange(6)):
            # Several segments of a file, and several parts of a segment, are different runs.
            number += 1
            made = ref(number // 4, number, segment=number // 2 % 2, h_min=number % 2)
            added.append(made)
        removed = rng.sample(list(lister.model), rng.randrange(min(6, len(lister.model)) + 1))
        lister.change(added, removed)
        lister.check()


def test_a_run_that_comes_and_goes_in_one_change_leaves_nothing() -> None:
    lister = Lister(10, 5)
    made = ref(1, 1)
    new = fold((), (), (), [made], [run_id(made)], read_page=lambda n: (), name_page=str)
    assert (new.pages, new.recent, new.gone) == ((), (), ())
    lister.check()


def test_bytes_of_an_epoch_do_not_grow_with_the_number_of_runs() -> None:
    def cost(lister: Lister, start: int) -> float:
        before = lister.bytes
        for number in range(start, start + 400):
            lister.change([ref(number, number)], [])
        return (lister.bytes - before) / 400

    lister = Lister(96, 256)
    young = cost(lister, 0)
    for number in range(400, 6000, 50):
        lister.change([ref(n, n) for n in range(number, number + 50)], [])
    old = cost(lister, 6000)
    lister.check()
    assert old < 1.5 * young, f"{young:.0f} bytes an epoch at first, {old:.0f} with 6,000 runs"
