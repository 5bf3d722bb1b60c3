// Sources and sinks, how far behind they are, late rows and rows that could not be processed.

import { rows } from "./api.js";
import { clock, h, ms, number, plural, replace, table } from "./dom.js";

const SHOWN = 200;

export async function flow(place) {
  const parts = Object.fromEntries(["sources", "sinks", "watermarks", "late", "errors"].map((name) => [name, h("div", {})]));
  const panel = (title, name) => h("section", { class: "panel", "aria-labelledby": `t-${name}` }, h("h2", { id: `t-${name}` }, title), parts[name]);
  replace(place, h("h1", {}, "Sources and sinks"), panel("Sources", "sources"), panel("Sinks", "sinks"), panel("Watermarks by source and partition", "watermarks"), panel("Rows that could not be processed", "errors"), panel("Late rows", "late"));

  async function update() {
    const [sources, sinks, marks, errors, late] = await Promise.all([
      rows("SELECT * FROM millpond.sources ORDER BY source, partition"),
      rows("SELECT * FROM millpond.sinks ORDER BY name"),
      rows("SELECT * FROM millpond.watermarks ORDER BY step, source NULLS FIRST, partition NULLS FIRST"),
      permitted(`SELECT step, reason, row, weight FROM millpond.errors LIMIT ${SHOWN + 1}`),
      permitted(`SELECT step, relation, row FROM millpond.late LIMIT ${SHOWN + 1}`),
    ]);
    const text = (v) => v ?? "";
    replace(parts.sources, table([{ name: "source" }, { name: "connector" }, { name: "partition", show: text }, { name: "position", wrap: true, show: text }, { name: "end_position", title: "end", show: text }, { name: "lag", type: "BIGINT", title: "rows behind", show: (v) => (v === null ? "–" : number(v)) }, { name: "error", wrap: true, show: (v) => (v ? h("span", { class: "badge bad" }, v) : "") }], sources, { label: "Sources", empty: "The pond has no sources." }));
    replace(parts.sinks, table([{ name: "name" }, { name: "view" }, { name: "connector" }, { name: "mode" }, { name: "guarantee", show: (v) => v.replaceAll("_", " ") }, { name: "state", show: (v) => h("span", { class: `badge ${{ current: "good", failed: "bad", behind: "warn" }[v] || ""}` }, v) }, { name: "epoch", type: "BIGINT", title: "received" , show: text }, { name: "behind", type: "BIGINT", title: "epochs behind", show: (v) => (v === null ? "–" : number(v)) }, { name: "error", wrap: true, show: text }], sinks, { label: "Sinks", empty: "The pond has no sinks." }));
    replace(parts.watermarks, table([{ name: "step" }, { name: "source", show: text }, { name: "partition", show: text }, { name: "watermark", show: clock }, { name: "newest", show: clock }, { name: "event_lag_ms", type: "DOUBLE", title: "behind newest", show: ms }, { name: "processing_lag_ms", type: "DOUBLE", title: "behind clock", show: ms }, { name: "state" }, { name: "late_rows", type: "BIGINT", title: "late" }, { name: "held_rows", type: "BIGINT", title: "waiting" }], marks, { label: "Watermarks", empty: "No step has a watermark." }));
    list(parts.errors, errors, [{ name: "step" }, { name: "reason", wrap: true }, { name: "row", wrap: true }, { name: "weight", type: "BIGINT", title: "times" }], "Error rows", "No row failed.");
    list(parts.late, late, [{ name: "step" }, { name: "row", wrap: true }], "Late rows", "No late rows are kept.");
  }
  let refused = {}; // rows of users need more rights than facts about them: asked once
  async function permitted(query) {
    if (refused[query]) return refused[query];
    try { return await rows(query); }
    catch (error) { if (error.status !== 403) throw error; return (refused[query] = error); }
  }
  function list(target, found, columns, label, empty) {
    if (found instanceof Error) { replace(target, h("p", { class: "muted" }, found.message)); return; }
    replace(target, table(columns, found.slice(0, SHOWN), { label, empty }), found.length > SHOWN && h("p", { class: "muted" }, `The first ${plural(SHOWN, "row")}; SQL reads all of them from millpond.${label === "Late rows" ? "late" : "errors"}.`));
  }
  return { update };
}
