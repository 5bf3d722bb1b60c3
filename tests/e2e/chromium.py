"""Debian's Chromium, driven by playwright: starts it, and watches what a page must not do."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@contextmanager
def browser() -> Iterator[Any]:
    """A headless browser; skips where there is none."""
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("Chromium is not installed (Debian package chromium)")
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=list(FLAGS))
        try:
            yield started
        finally:
            started.close()


class Watched:
    """A page, and what it did that it must not: errors in its console and requests to other places."""

    def __init__(self, found: Any, base: str, **options: Any) -> None:
        self.base = base
        self.context = found.new_context(viewport={"width": 1180, "height": 760}, **options)
        self.page = self.context.new_page()
        self.page.set_default_timeout(60_000)
        self.errors: list[str] = []
        self.outside: list[str] = []
        self.expected: list[str] = []  # beginnings of console errors that a test provokes
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", self._asked)

    def _said(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.errors.append(message.text)

    def _asked(self, request: Any) -> None:
        if not request.url.startswith((f"{self.base}/", "data:")):
            self.outside.append(request.url)

    def open(self, place: str) -> Any:
        self.page.goto(f"{self.base}/#/{place}")
        self.page.wait_for_selector("main h1")
        return self.page

    def close(self) -> None:
        self.context.close()

    def behaved(self) -> None:
        """Fail if the page did what it must not."""
        unexpected = [e for e in self.errors if not any(e.startswith(begin) for begin in self.expected)]
        assert not unexpected
        assert not self.outside


# Elements without an accessible name, and texts with too little contrast, as an audit of accessibility finds them.
AUDIT = """() => {
  const problems = [];
  const visible = (e) => e.checkVisibility?.({ checkOpacity: true, checkVisibilityCSS: true }) && e.getClientRects().length;
  const named = (e) => (e.getAttribute("aria-label") || (e.getAttribute("aria-labelledby") && document.getElementById(e.getAttribute("aria-labelledby"))?.textContent) || e.labels?.[0]?.textContent || (/^(INPUT|SELECT|TEXTAREA)$/.test(e.tagName) ? "" : e.textContent) || "").trim();
  for (const e of document.querySelectorAll("button, a[href], input, select, textarea, [role=button], [role=region], [tabindex='0'], dialog, meter"))
    if (visible(e) && !named(e)) problems.push(`no name: ${e.outerHTML.slice(0, 120)}`);
  const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
  for (const id of new Set(ids.filter((id, n) => ids.indexOf(id) !== n))) problems.push(`id twice: ${id}`);
  if (!document.documentElement.lang) problems.push("no language");
  if (document.querySelectorAll("h1").length !== 1) problems.push("not one h1");
  for (const part of ["main", "nav", "header"]) if (document.querySelectorAll(part).length !== 1) problems.push(`not one ${part}`);
  const rgb = (text) => { const m = text.match(/[\\d.]+/g)?.map(Number); return m && (m.length < 4 || m[3] > 0.9) ? m : null; };
  const light = ([r, g, b]) => { const f = (v) => ((v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * f(r) + 0.7152 * f(g) + 0.0722 * f(b); };
  const back = (e) => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor); if (c) return c; } return [255, 255, 255]; };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const e = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || !visible(e) || e.closest(":disabled, .hidden, option")) continue;
    const style = getComputedStyle(e), ink = rgb(e instanceof SVGElement ? style.fill : style.color);
    if (!ink) continue;
    const [a, b] = [light(ink), light(back(e))].sort((x, y) => y - x), ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) problems.push(`contrast ${ratio.toFixed(2)}: ${e.tagName} ${walker.currentNode.textContent.trim().slice(0, 40)}`);
  }
  return problems;
}"""
