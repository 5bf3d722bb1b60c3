// State tables: rows, bytes and runs.

import { rows } from "./api.js";
import { bytes, h, number, plural, replace, table } from "./dom.js";

export async function tables(place) {
  const search = h("input", { type: "search", placeholder: "Find a table  ( / )", "aria-label": "Find a table" });
  const order = h("select", { "aria-label": "Sort by" }, ["bytes", "rows", "runs", "name"].map((name) => h("option", {}, name)));
  const total = h("span", { class: "muted", role: "status" }), out = h("div", { class: "panel" });
  replace(place, h("h1", {}, "Tables"), h("p", { class: "row" }, search, h("label", {}, "sort by", order), total), out);
  let all = [];
  function paint() {
    const word = search.value.trim().toLowerCase(), by = order.value === "name" ? "table" : order.value;
    const found = all.filter((one) => `${one.table} ${one.relation ?? ""}`.toLowerCase().includes(word)).sort((a, b) => (by === "table" ? (a.table < b.table ? -1 : 1) : b[by] - a[by]));
    const most = Math.max(1, ...found.map((one) => one.bytes));
    total.textContent = `${plural(found.length, "table")}, ${bytes(found.reduce((n, one) => n + one.bytes, 0))}, ${plural(found.reduce((n, one) => n + one.runs, 0), "run")}`;
    replace(out, table([{ name: "table" }, { name: "relation", title: "shown as", show: (v) => (v ? h("a", { href: `#/views/${encodeURIComponent(v)}` }, v) : "") }, { name: "rule", show: (v) => v ?? "" }, { name: "key", show: (v) => v ?? "" }, { name: "rows", type: "BIGINT", title: "rows (at most)", show: (v) => number(v) }, { name: "bytes", type: "BIGINT", show: (v) => bytes(v) }, { name: "share", title: "", show: (_, one) => h("meter", { min: 0, max: most, value: one.bytes, "aria-label": `${bytes(one.bytes)} of at most ${bytes(most)}` }) }, { name: "runs", type: "BIGINT" }, { name: "buckets", type: "BIGINT", show: (v) => v ?? "" }], found.slice(0, 500), { label: "State tables", empty: "No table has this name." }), found.length > 500 && h("p", { class: "muted" }, "The first 500; find others by name."));
  }
  search.addEventListener("input", paint);
  order.addEventListener("change", paint);
  return { update: async () => { all = await rows('SELECT * FROM millpond.tables'); if (!out.contains(document.activeElement) || document.activeElement === document.body) paint(); } };
}
