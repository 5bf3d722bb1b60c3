// A SQL prompt with completion of names and keywords.

import { quoted, rows, sql } from "./api.js";
import { failure, h, plural, replace, table } from "./dom.js";

const KEYWORDS = "SELECT FROM WHERE GROUP BY ORDER BY HAVING LIMIT OFFSET JOIN LEFT JOIN ON USING AS AS OF EPOCH AS OF SAVEPOINT WITH UNION ALL DISTINCT COUNT(*) SUM AVG MIN MAX CASE WHEN THEN ELSE END AND OR NOT IN IS NULL BETWEEN LIKE INSERT INTO VALUES UPDATE SET DELETE FROM CREATE TABLE CREATE VIEW CREATE MATERIALIZED VIEW CREATE SOURCE CREATE SINK CREATE SAVEPOINT DROP EXPLAIN EXPLAIN ANALYZE DESCRIBE SHOW JOBS SHOW EPOCHS SHOW WATERMARKS FLUSH DIFF("
  .match(/AS OF EPOCH|AS OF SAVEPOINT|GROUP BY|ORDER BY|LEFT JOIN|UNION ALL|INSERT INTO|DELETE FROM|CREATE MATERIALIZED VIEW|CREATE \w+|EXPLAIN ANALYZE|SHOW \w+|\S+/g);
const SYSTEM = ["epochs", "steps", "tables", "watermarks", "sources", "sinks", "errors", "late", "jobs", "savepoints", "objects"].map((name) => `millpond.${name}`);
const ROWS_MAX = 1000;

export async function prompt(place) {
  const area = h("textarea", { id: "query", spellcheck: "false", autocomplete: "off", role: "combobox", "aria-expanded": "false", "aria-autocomplete": "list", "aria-controls": "completions", "aria-describedby": "query-help", rows: 5 });
  const menu = h("ul", { class: "menu", id: "completions", role: "listbox", "aria-label": "Completions", hidden: true });
  const run = h("button", { type: "button", class: "primary" }, "Run"), out = h("div", { "aria-live": "polite" });
  const asked = JSON.parse(sessionStorage.getItem("millpond-queries") || "[]");
  const past = h("select", { "aria-label": "Earlier statements" });
  area.value = sessionStorage.getItem("millpond-query") || "SELECT epoch, kind, rows, ms FROM millpond.epochs ORDER BY epoch DESC LIMIT 10";
  replace(place, h("h1", {}, "SQL"),
    h("div", { class: "panel" }, h("label", { for: "query", class: "stack" }, "Statement"), h("div", { class: "prompt" }, area, menu),
      h("p", { class: "row" }, run, past, h("span", { class: "muted", id: "query-help" }, "Ctrl+Enter runs it. Ctrl+Space or typing completes names; Tab takes one, Escape closes."))),
    out);
  let names = [], offers = [], at = 0;

  async function learn() {
    const objects = await rows("SELECT name, kind, columns FROM millpond.objects");
    const plain = (name) => (/^[a-z_][a-z0-9_]*$/.test(name) ? name : quoted(name));
    const columns = new Map();
    for (const one of objects) for (const text of (one.columns || "").split(", ")) { const name = text.split(" ")[0]; if (name) columns.set(plain(name), `column of ${one.name}`); }
    names = [...objects.map((one) => [plain(one.name), one.kind]), ...SYSTEM.map((name) => [name, "system relation"]), ...[...columns].map(([name, kind]) => [name, kind]), ...[...new Set(KEYWORDS)].map((word) => [word, "keyword"])];
  }

  const word = () => area.value.slice(0, area.selectionStart).match(/[\w."]*$/)[0];
  function offer(always) {
    const begun = word().toLowerCase();
    offers = begun || always ? names.filter(([name]) => name.toLowerCase().startsWith(begun) && name.toLowerCase() !== begun).slice(0, 12) : [];
    if (!offers.length && begun.length > 2) offers = names.filter(([name]) => name.toLowerCase().includes(begun) && name.toLowerCase() !== begun).slice(0, 8);
    at = 0;
    paint();
  }
  function paint() {
    menu.hidden = !offers.length;
    area.setAttribute("aria-expanded", String(!menu.hidden));
    replace(menu, offers.map(([name, kind], n) => h("li", { role: "option", id: `completion-${n}`, "aria-selected": String(n === at), onmousedown: (event) => { event.preventDefault(); at = n; take(); } }, name, h("small", {}, kind))));
    if (menu.hidden) { area.removeAttribute("aria-activedescendant"); return; }
    area.setAttribute("aria-activedescendant", `completion-${at}`);
    const before = area.value.slice(0, area.selectionStart).split("\n");
    menu.style.top = `${Math.min(area.clientHeight, 8 + before.length * 19 - area.scrollTop)}px`;
    menu.style.left = `${Math.min(area.clientWidth - 230, 8 + (before.at(-1).length - word().length) * 7.5)}px`;
    menu.children[at]?.scrollIntoView({ block: "nearest" });
  }
  function take() {
    const begun = word(), end = area.selectionStart;
    area.setRangeText(offers[at][0] + (/\($/.test(offers[at][0]) ? "" : " "), end - begun.length, end, "end");
    close();
  }
  function close() { offers = []; paint(); }

  async function execute() {
    const text = area.value.trim();
    if (!text) return;
    close();
    sessionStorage.setItem("millpond-query", text);
    if (asked[0] !== text) { asked.unshift(text); asked.splice(30); sessionStorage.setItem("millpond-queries", JSON.stringify(asked)); remember(); }
    run.disabled = true;
    const started = performance.now();
    replace(out, h("p", { class: "muted", role: "status" }, "running …"));
    try {
      const found = await sql(text), took = Math.round(performance.now() - started), list = found.rows.slice(0, ROWS_MAX);
      const said = found.columns.length ? `${plural(found.rows.length, "row")}${found.rows.length > ROWS_MAX ? `, the first ${ROWS_MAX} shown` : ""}${found.epoch === null ? "" : ` at epoch ${found.epoch}`}` : found.status;
      replace(out, h("div", { class: "panel" }, h("p", { role: "status" }, `${said} · ${took} ms`), (found.warnings || []).map((warning) => h("p", { class: "badge warn" }, warning)),
        found.columns.length ? table(found.columns.map((c) => ({ ...c, hint: c.type.toLowerCase(), show: c.name === "plan" ? (v) => h("pre", {}, v) : undefined })), list, { label: "Result", empty: "The result has no rows." }) : null));
    } catch (error) { replace(out, failure(error)); }
    finally { run.disabled = false; }
  }
  function remember() {
    past.hidden = !asked.length;
    replace(past, h("option", { value: "" }, "earlier statements"), asked.map((text, n) => h("option", { value: n }, text.replace(/\s+/g, " ").slice(0, 70))));
  }
  past.addEventListener("change", () => { if (past.value !== "") { area.value = asked[Number(past.value)]; area.focus(); } past.value = ""; });
  run.addEventListener("click", execute);
  area.addEventListener("input", () => offer(false));
  area.addEventListener("blur", close);
  area.addEventListener("click", close);
  area.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); execute(); return; }
    if (event.key === " " && event.ctrlKey) { event.preventDefault(); offer(true); return; }
    if (menu.hidden) return;
    if (event.key === "Tab" || event.key === "Enter") { event.preventDefault(); take(); }
    else if (event.key === "Escape") { event.preventDefault(); close(); }
    else if (event.key === "ArrowDown" || event.key === "ArrowUp") { event.preventDefault(); at = (at + (event.key === "ArrowDown" ? 1 : offers.length - 1)) % offers.length; paint(); }
  });
  remember();
  await learn();
  if (document.activeElement === area) offer(); // what was typed before the names were known
  area.focus();
  return { update: null };
}
