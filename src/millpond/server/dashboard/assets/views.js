// Views page by page, by key, at past epochs, and the difference between two epochs.

import { quoted, rows, sql } from "./api.js";
import { clock, failure, h, number, plural, replace, table } from "./dom.js";

const PAGE = 50, DIFF_MAX = 500;

export async function views(place, pond, [wanted]) {
  const filter = h("input", { type: "search", placeholder: "Find a view  ( / )", "aria-label": "Find a view" });
  const list = h("ul", { class: "list", "aria-label": "Tables and views" });
  const side = h("div", { class: "panel" }, filter, list), shown = h("div", {});
  replace(place, h("h1", {}, "Views"), h("div", { class: "split" }, side, shown));
  let all = [], current = null, epochs = [];

  async function load() {
    all = await rows("SELECT name, kind, columns, key FROM millpond.objects WHERE kind IN ('table', 'view', 'materialized view', 'late rows') ORDER BY name");
    entries();
    const first = all.find((one) => one.name === wanted) || (current === null && all[0]);
    if (first && current === null) await open(first);
    if (!all.length) replace(shown, h("div", { class: "panel" }, h("p", { class: "muted" }, "The pond has no tables or views yet.")));
  }

  function entries() {
    const word = filter.value.trim().toLowerCase();
    replace(list, all.filter((one) => one.name.toLowerCase().includes(word)).slice(0, 300).map((one) =>
      h("li", {}, h("button", { type: "button", "aria-pressed": String(one.name === current?.name), onclick: () => open(one) }, one.name, h("small", {}, one.kind === "materialized view" ? "mat. view" : one.kind)))));
  }
  filter.addEventListener("input", entries);

  async function open(view) {
    current = { ...view, offset: 0, where: null, live: true };
    history.replaceState(null, "", `#/views/${encodeURIComponent(view.name)}`);
    entries();
    const range = (label) => h("input", { type: "range", "aria-label": label, step: 1 });
    const at = range("Epoch to read"), base = range("Epoch to compare with");
    const saidAt = h("output", { class: "mono" }), saidBase = h("output", { class: "mono" });
    const compare = h("input", { type: "checkbox" }), against = h("div", { class: "row when" }, h("span", {}, "from"), h("div", { class: "grow" }, base), saidBase);
    const out = h("div", { "aria-live": "polite" }), pages = h("div", { class: "row" }), heading = h("h2", {}, view.name);
    const columns = (view.columns || "").split(", ").map((text) => text.split(" ")[0]), keys = view.key ? view.key.split(", ") : [];
    const fields = (keys.length ? keys : columns.slice(0, 1)).map((name) => h("label", { class: "stack" }, name, h("input", { type: "text", name, autocomplete: "off", size: 14 })));
    const byColumn = keys.length ? null : h("label", { class: "stack" }, "column", h("select", { onchange: (e) => { fields[0].firstChild.textContent = e.target.value; fields[0].lastChild.name = e.target.value; } }, columns.map((name) => h("option", {}, name))));
    const form = h("form", { class: "row", "aria-label": "Search by key" }, byColumn, fields, h("button", { type: "submit" }, "Find"), h("button", { type: "reset" }, "Clear"));
    const now = h("button", { type: "button", onclick: () => { current.live = true; bounds(); read(); } }, "newest");
    replace(shown,
      h("div", { class: "panel" }, h("div", { class: "row between" }, heading, h("span", { class: "muted" }, `${view.kind}${view.key ? `, key ${view.key}` : ""}`)),
        h("div", { class: "row when" }, h("span", {}, "epoch"), h("div", { class: "grow" }, at), saidAt, now),
        h("div", { class: "row" }, h("label", {}, compare, "show the difference between two epochs")), against, form),
      h("div", { class: "panel" }, out, pages));
    against.hidden = true;

    async function bounds() {
      epochs = await rows("SELECT epoch, at, note FROM millpond.epochs ORDER BY epoch");
      for (const input of [at, base]) { const before = input.value; input.min = 0; input.max = Math.max(0, epochs.length - 1); input.value = before; }
      if (current.live) at.value = epochs.length - 1;
      if (!base.touched) base.value = Math.max(0, epochs.length - 2);
      say();
    }
    const chosen = (input) => epochs[Number(input.value)];
    function say() {
      for (const [input, output] of [[at, saidAt], [base, saidBase]]) {
        const one = chosen(input);
        output.textContent = one ? `${one.epoch} · ${clock(one.at).slice(0, 19)}${one.note ? " · " + one.note : ""}` : "";
        input.setAttribute("aria-valuetext", one ? `epoch ${one.epoch}, ${clock(one.at).slice(0, 19)}` : "");
      }
      now.disabled = current.live;
    }

    async function read() {
      const mine = (current.read = {}), one = chosen(at);
      if (!one) return replace(out, h("p", { class: "muted" }, "No epoch was committed yet."));
      try {
        const found = compare.checked ? await difference(one) : await rowsAt(one);
        if (current.read === mine) replace(out, found);
      } catch (error) { if (current.read === mine) { replace(out, failure(error)); replace(pages); } }
    }

    async function rowsAt(one) {
      const names = Object.entries(current.where || {}), name = quoted(view.name), past = current.live ? "" : ` AS OF EPOCH ${one.epoch}`;
      const where = names.length ? " WHERE " + names.map(([column], n) => `${quoted(column)} = ${literal(names[n][1], column)}`).join(" AND ") : "";
      const order = keys.length ? keys.map(quoted).join(", ") : "ALL";
      const found = await sql(`SELECT * FROM ${name}${past}${where} ORDER BY ${order} LIMIT ${PAGE + 1} OFFSET ${current.offset}`);
      const more = found.rows.length > PAGE, list = found.rows.slice(0, PAGE);
      replace(pages, h("button", { type: "button", disabled: current.offset === 0, onclick: () => { current.offset -= PAGE; read(); } }, "← previous"),
        h("span", { class: "muted", role: "status" }, list.length ? `rows ${current.offset + 1} to ${current.offset + list.length} at epoch ${found.epoch ?? one.epoch}` : "no rows"),
        h("button", { type: "button", disabled: !more, onclick: () => { current.offset += PAGE; read(); } }, "next →"));
      return table(found.columns.map((c) => ({ ...c, hint: c.type.toLowerCase() })), list, { label: `Rows of ${view.name}`, empty: names.length ? "No row has this key at this epoch." : "The view has no rows at this epoch." });
    }

    function literal(text, column) {
      const type = ((view.columns || "").split(", ").find((one) => one.startsWith(column + " ")) || "").slice(column.length + 1);
      return /^(TINYINT|SMALLINT|INTEGER|BIGINT|HUGEINT|U\w*INT|DOUBLE|FLOAT|DECIMAL)/.test(type) && /^-?\d+(\.\d+)?$/.test(text.trim()) ? text.trim() : `'${text.replaceAll("'", "''")}'`;
    }

    async function difference(one) {
      const from = chosen(base);
      replace(pages);
      const found = await sql(`SELECT * FROM DIFF(${quoted(view.name)}, ${from.epoch}, ${one.epoch}) ORDER BY ALL LIMIT ${DIFF_MAX}`);
      const weight = found.columns[0].name, came = found.rows.reduce((n, r) => n + Math.max(0, r[weight]), 0), went = found.rows.reduce((n, r) => n + Math.max(0, -r[weight]), 0);
      const shownColumns = [...found.columns.slice(1)], order = keys.length ? keys : shownColumns.map((c) => c.name);
      const sorted = [...found.rows].sort((a, b) => { for (const k of order) { if (a[k] < b[k]) return -1; if (a[k] > b[k]) return 1; } return a[weight] - b[weight]; });
      return [h("p", { role: "status" }, h("strong", {}, `+${number(came)}`), " came, ", h("strong", {}, `−${number(went)}`), ` went from epoch ${from.epoch} to epoch ${one.epoch}`, found.rows.length === DIFF_MAX && ` (the first ${DIFF_MAX} changes)`),
        table([{ name: weight, title: "change", show: (w) => (w > 0 ? `+ ${w}` : `− ${-w}`) }, ...shownColumns], sorted, { label: `Changes of ${view.name}`, rowClass: (r) => (r[weight] > 0 ? "came" : "went"), empty: "Nothing changed between these epochs." })];
    }

    at.addEventListener("input", () => { current.live = Number(at.value) === epochs.length - 1; current.offset = 0; say(); });
    base.addEventListener("input", () => { base.touched = true; say(); });
    for (const input of [at, base]) input.addEventListener("change", read);
    compare.addEventListener("change", () => { against.hidden = !compare.checked; form.hidden = compare.checked; read(); });
    form.addEventListener("submit", (event) => { event.preventDefault(); const given = [...new FormData(form)].filter(([, value]) => value !== ""); current.where = given.length ? Object.fromEntries(given) : null; current.offset = 0; read(); });
    form.addEventListener("reset", () => { current.where = null; current.offset = 0; setTimeout(read); });
    current.refresh = async () => { await bounds(); if (current.live && !out.contains(document.activeElement)) await read(); };
    await bounds();
    await read();
  }

  await load();
  return { update: async () => { if (!all.length) await load(); else await current?.refresh?.(); } };
}
