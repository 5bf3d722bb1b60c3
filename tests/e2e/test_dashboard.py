"""The dashboard in a real browser: what a person comes for, by mouse, by keyboard and for a screen reader.

`MILLPOND_SCREENSHOTS=1` writes the pictures of docs/serving/dashboard.md.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette")

from millpond.server.authentication import ServedUser
from millpond.server.authorization import AllowAll, NotAllowedError
from millpond.server.server import Server
from millpond.server.settings import ServeSettings
from millpond.sql.session import SqlSession
from millpond.sql.text.parse import SqlFragment
from tests.e2e.chromium import AUDIT, Watched, browser
from tests.e2e.dashboard_world import Shop, thousand_steps
from tests.sampling import first

IMAGES = Path(__file__).parents[2] / "docs" / "images"
PAGES = ("overview", "plan", "views", "sql", "flow", "tables", "history")


@pytest.fixture(scope="module")
def chrome() -> Iterator[Any]:
    with browser() as found:
        yield found


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    made = Shop(str(tmp_path_factory.mktemp("dashboard") / "shop"))
    made.live(16)
    yield made
    made.pond.close()


@pytest.fixture(scope="module")
def base(shop: Shop) -> Iterator[str]:
    with shop.pond.serve(http_port=0) as server:
        yield server.urls["http"]


@pytest.fixture
def watched(chrome: Any, base: str) -> Iterator[Watched]:
    found = Watched(chrome, base)
    yield found
    found.close()
    found.behaved()


def picture(page: Any, name: str, whole: bool = False) -> None:
    if os.environ.get("MILLPOND_SCREENSHOTS"):
        IMAGES.mkdir(exist_ok=True)
        page.wait_for_timeout(500)
        page.screenshot(path=IMAGES / f"dashboard-{name}.png", full_page=whole)


def text(page: Any, selector: str) -> str:
    return str(page.locator(selector).inner_text())


def test_the_overview_follows_new_epochs(shop: Shop, watched: Watched) -> None:
    page = watched.open("overview")
    page.wait_for_selector(".chart .bar")
    before = text(page, "#head-epoch")
    assert before == f"epoch {shop.pond.epoch}"
    assert "Error rows" in text(page, ".tiles") and "Late rows\n3" in text(page, ".tiles")
    picture(page, "overview")
    shop.push(500)
    shop.pond.drain()
    page.locator(".chart .bar[aria-label$=', 500 rows']").wait_for(state="attached")
    assert text(page, "#head-epoch") != before
    page.locator(".chart .bar[tabindex='0']").focus()
    page.keyboard.press("ArrowLeft")
    assert re.match(r"epoch \d+ · .* · level 0 ", text(page, ".tip"))


def test_the_plan_shows_the_bottleneck(watched: Watched) -> None:
    page = watched.open("plan")
    page.wait_for_selector(".plan .node")
    slowest = text(page, ".list li:first-child button").split("\n")[0]
    shares = page.eval_on_selector_all(
        ".plan .node",
        "all => all.map(n => [n.dataset.step, n.querySelector('.heat, .hot').getAttribute('width') * 1])",
    )
    assert max(shares, key=lambda one: one[1])[0] == slowest
    assert re.search(r"slowest task .* · skew \d", page.locator(".plan svg").text_content())
    page.locator(f".plan .node[data-step='{slowest}']").click()
    facts = text(page, ".facts")
    assert "Operator" in facts and "State" in facts and "% of all steps" in facts
    picture(page, "plan")
    page.keyboard.press("/")
    page.keyboard.type("loyalty")
    assert page.locator(".plan .node.found").count() == 1
    page.keyboard.press("Enter")
    assert text(page, "h2:has-text('loyalty')") == "loyalty"
    assert page.evaluate("document.activeElement.dataset.step") == "loyalty"
    page.keyboard.press("ArrowLeft")
    assert page.evaluate("document.activeElement.dataset.step") == "orders.watermark"


def test_a_view_by_page_by_key_and_in_the_past(shop: Shop, watched: Watched) -> None:
    page = watched.open("views/customers")
    page.wait_for_selector("tbody tr")
    assert page.locator("tbody tr").count() == 50
    page.get_by_role("button", name="next →").click()
    page.get_by_text("rows 51 to 100").wait_for()
    page.get_by_label("name", exact=True).fill("c003")
    page.get_by_role("button", name="Find").click()
    page.get_by_text("rows 1 to 1 ").wait_for()
    assert page.locator("tbody tr").inner_text().split("\t") == ["c003", "Cork", "99"]
    slider = page.get_by_label("Epoch to read")
    slider.fill("1")
    slider.dispatch_event("change")
    page.get_by_role("cell", name="23", exact=True).wait_for()
    page.get_by_role("button", name="newest").click()
    page.get_by_role("cell", name="99", exact=True).wait_for()


def test_the_difference_between_two_epochs(shop: Shop, watched: Watched) -> None:
    page = watched.open("views/people_by_city")
    page.get_by_label("show the difference between two epochs").check()
    base = page.get_by_label("Epoch to compare with")
    base.fill("1")
    base.dispatch_event("change")
    page.get_by_text("from epoch 1 to epoch").wait_for()
    changes = shop.pond.diff("people_by_city", 1, shop.pond.epoch)
    assert page.locator("tr.came").count() == page.locator("tr.went").count() == changes.num_rows / 2 > 0
    picture(page, "difference")


def test_sql_with_completion(watched: Watched) -> None:
    page = watched.open("sql")
    query = page.get_by_label("Statement", exact=True)
    query.fill("")
    query.press_sequentially("SELECT city, n FROM by_c")
    page.get_by_role("option").first.wait_for()
    assert page.get_by_role("option").all_inner_texts()[0].startswith("by_city")
    picture(page, "sql")
    page.keyboard.press("Tab")
    query.press_sequentially("ORDER BY n DESC LIMIT 2")
    page.keyboard.press("Control+Enter")
    page.get_by_text("2 rows at epoch").wait_for()
    assert page.locator("tbody tr").count() == 2
    query.fill("SELECT nope FROM by_city")
    watched.expected.append("Failed to load resource: the server responded with a status of 400")
    page.get_by_role("button", name="Run").click()
    assert "nope" in page.get_by_role("alert").inner_text()


def test_sources_sinks_errors_and_tables(shop: Shop, watched: Watched) -> None:
    page = watched.open("flow")
    page.get_by_text("ZeroDivisionError").first.wait_for()
    assert "mail" in text(page, "section[aria-labelledby=t-sinks]")
    assert "orders" in text(page, "section[aria-labelledby=t-sources]")
    page = watched.open("tables")
    page.wait_for_selector("tbody tr")
    page.get_by_label("Find a table").fill("loyalty")
    assert page.locator("tbody tr").count() >= 1
    assert all("loyalty" in row for row in page.locator("tbody tr").all_inner_texts())


def test_savepoint_rescale_rollback_and_fork(shop: Shop, watched: Watched, tmp_path: Path) -> None:
    page = watched.open("history")
    change = page.get_by_role("row", name=re.compile("rich"))
    change.get_by_role("button").click()
    assert "CREATE MATERIALIZED VIEW rich" in page.locator("ins").inner_text()
    picture(page, "history")
    page.get_by_role("button", name="Savepoint …").click()
    page.get_by_label("Name").fill("tested")
    page.get_by_role("button", name="Create").click()
    page.locator("#toast").get_by_text("savepoint tested is epoch").wait_for()
    assert "tested" in shop.pond.savepoints()
    page.get_by_role("button", name="Rescale …").click()
    page.get_by_label("Tasks").fill("3")
    page.get_by_role("button", name="Rescale", exact=True).click()
    page.get_by_text("the next epochs run 3 tasks").wait_for()
    assert shop.pond.head().parallelism == 3
    shop.pond.insert("customers", {"name": "zz", "city": "Cork", "age": 1})
    shop.pond.drain()
    page.get_by_role("button", name="Roll back to tested").click()
    page.get_by_role("button", name="Roll back", exact=True).last.click()
    page.get_by_text("rolled back to epoch tested").wait_for()
    assert shop.pond.lookup("customers", "zz").num_rows == 0
    page.get_by_role("button", name="Fork …").click()
    page.get_by_label("Folder or address of the new pond").fill(str(tmp_path / "forked"))
    page.get_by_label("Epoch or savepoint").fill("tested")
    page.get_by_role("button", name="Fork", exact=True).click()
    page.get_by_text("is a fork of epoch").wait_for()
    assert (tmp_path / "forked").exists()


class ReadOnly(AllowAll):
    def check(self, user: ServedUser, statement: SqlFragment, session: SqlSession) -> None:
        if "ERRORS" in statement.words:
            raise NotAllowedError(f"{user.name} may not see rows that failed")

    def check_action(self, user: ServedUser, action: str, target: str | None = None) -> None:
        raise NotAllowedError(f"{user.name} may not {action}")


def test_a_reader_sees_no_actions_and_cannot_do_them(chrome: Any, shop: Shop) -> None:
    with Server(shop.pond, ServeSettings(http_port=0), authorizer=ReadOnly()) as server:
        watched = Watched(chrome, server.start()["http"])
        page = watched.open("history")
        page.get_by_text("You may read this pond, but not change it.").wait_for()
        assert (
            page.get_by_role("button", name=re.compile("Roll back|Drop|Rescale|Fork|Savepoint")).count() == 0
        )
        status = "async () => (await fetch('dashboard/actions/rescale', {method: 'POST', headers: {'Content-Type': 'application/json'}, body: '{\"parallelism\": 9}'})).status"
        watched.expected.append("Failed to load resource: the server responded with a status of 403")
        assert page.evaluate(status) == 403
        assert shop.pond.head().parallelism != 9
        page = watched.open("flow")
        page.get_by_text("anonymous may not see rows that failed").wait_for()
        assert "mail" in text(page, "section[aria-labelledby=t-sinks]"), "the others are shown"
        watched.close()
        watched.behaved()


@pytest.mark.parametrize("scheme", first(1, ["dark", "light"]))
def test_every_page_passes_an_audit(chrome: Any, base: str, scheme: str) -> None:
    watched = Watched(chrome, base, color_scheme=scheme)
    for name in PAGES:
        page = watched.open(name)
        page.wait_for_timeout(700)
        assert page.evaluate("document.documentElement.dataset.theme") == scheme
        assert page.evaluate(AUDIT) == [], name
    if scheme == "dark":
        watched.open("overview").wait_for_selector(".chart .bar")
        picture(watched.page, "dark")
        watched.page.get_by_label("Colours: as the system").click()
        assert watched.page.evaluate("document.documentElement.dataset.theme") == "light"
    watched.close()
    watched.behaved()


def test_a_narrow_screen_needs_no_sideways_scrolling(chrome: Any, base: str) -> None:
    watched = Watched(chrome, base)
    watched.page.set_viewport_size({"width": 400, "height": 800})
    for name in PAGES:
        page = watched.open(name)
        page.wait_for_timeout(500)
        assert page.evaluate("document.documentElement.scrollWidth") <= 400, name
    watched.close()
    watched.behaved()


def test_every_page_can_be_reached_by_keyboard(watched: Watched) -> None:
    page = watched.open("overview")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to content"
    reached = []
    for _ in range(10):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.textContent.trim()"))
    assert {"Overview", "Plan", "Views", "SQL", "Sources and sinks", "Tables", "History"} <= set(reached)


@pytest.mark.slow
def test_a_thousand_steps(chrome: Any, tmp_path: Path) -> None:
    pond = thousand_steps(str(tmp_path / "sensors"))
    assert len(pond.at().plan.nodes) >= 1000
    with pond, pond.serve(http_port=0) as server:
        watched = Watched(chrome, server.urls["http"])
        page = watched.open("plan")
        page.wait_for_selector(".plan .node")
        assert page.locator(".plan .node").count() < 60, (
            "the slowest of each level, and one box for the others"
        )
        assert "more objects" in page.locator(".plan svg").text_content()
        picture(page, "thousand-steps")
        page.get_by_label("one box per object").uncheck()
        assert page.evaluate("document.querySelector('.plan svg').getAttribute('height') * 1") > 20_000
        assert page.locator(".plan .node").count() < 60, "only boxes in view are in the document"
        page.get_by_label("Find a step").fill("alarm_321.peak")
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.dataset.step") == "alarm_321.peak"
        assert page.evaluate(AUDIT) == []
        watched.close()
        watched.behaved()
