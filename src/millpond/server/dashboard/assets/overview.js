// How the pond is doing now: figures, the timeline of epochs by phase, backlog and watermarks.

import { rows } from "./api.js";
import { lineChart, timeline } from "./charts.js";
import { bytes, clock, h, ms, number, plural, replace, table, time } from "./dom.js";

const SHOWN = 80;

export async function overview(place) {
  const tiles = h("dl", { class: "tiles" });
  const drawn = h("div", {}), tip = h("p", { class: "tip", "aria-live": "polite" });
  const listed = h("details", {}, h("summary", {}, "The same as a table"), h("div", {}));
  const rate = h("div", {}), backlog = h("div", {}), marks = h("div", {}), jobs = h("div", {});
  replace(place, h("h1", {}, "Overview"), tiles,
    h("section", { class: "panel", "aria-labelledby": "t-epochs" }, h("h2", { id: "t-epochs" }, "Epochs by phase"), drawn, tip, listed),
    h("div", { class: "cols" },
      h("section", { class: "panel" }, h("h2", {}, "Rows per epoch"), rate),
      h("section", { class: "panel" }, h("h2", {}, "Backlog"), backlog)),
    h("div", { class: "cols" },
      h("section", { class: "panel" }, h("h2", {}, "Watermarks"), marks),
      h("section", { class: "panel" }, h("h2", {}, "Jobs"), jobs)));

  async function update() {
    const [epochs, sums, watermarks, sinks, running] = await Promise.all([
      rows(`SELECT * FROM millpond.epochs WHERE ms IS NOT NULL ORDER BY epoch DESC LIMIT ${SHOWN}`),
      rows("SELECT sum(bytes) AS bytes, sum(runs) AS runs, count(*) AS tables FROM millpond.tables"),
      rows("SELECT * FROM millpond.watermarks WHERE source IS NULL"),
      rows("SELECT name, state, behind FROM millpond.sinks"),
      rows("SELECT * FROM millpond.jobs"),
    ]);
    const ran = epochs.toReversed(), newest = ran.at(-1);
    const lag = Math.max(...watermarks.map((w) => w.processing_lag_ms ?? -Infinity));
    const behind = sinks.filter((sink) => sink.state !== "current");
    replace(tiles, [
      tile("Rows per second", number(perSecond(ran), 1), ran.length ? `over ${plural(ran.length, "epoch")}` : "no epoch ran yet"),
      tile("Epoch", ms(quantile(ran.map((e) => e.ms), 0.5)), `p95 ${ms(quantile(ran.map((e) => e.ms), 0.95))}`),
      tile("Skew", ran.length ? `${(ran.at(-1).skew ?? 1).toFixed(2)} ×` : "–", "slowest to mean", (ran.at(-1)?.skew ?? 1) > 2 && "warn"),
      tile("Backlog", number(newest?.backlog_rows ?? latest(ran, "backlog_rows")), "rows not yet read"),
      tile("Watermark lag", Number.isFinite(lag) ? ms(lag) : "–", "behind the clock"),
      tile("Late rows", number(newest?.late_rows ?? 0), "in all epochs", newest?.late_rows > 0 && "warn", "#/flow"),
      tile("Error rows", number(newest?.error_rows ?? 0), "in all epochs", newest?.error_rows > 0 && "bad", "#/flow"),
      tile("Sinks behind", `${behind.length} of ${sinks.length}`, behind.map((b) => b.name).join(", ") || "all are current", behind.length > 0 && "warn", "#/flow"),
      tile("State", bytes(sums[0].bytes), `${plural(sums[0].runs ?? 0, "run")} in ${plural(sums[0].tables, "table")}`),
    ]);
    timeline(drawn, ran, (epoch) => { tip.textContent = told(epoch); });
    if (!tip.textContent && ran.length) tip.textContent = told(ran.at(-1));
    if (listed.open || !listed.lastChild.hasChildNodes()) replace(listed.lastChild, table([
      { name: "epoch", type: "BIGINT" }, { name: "at", show: clock }, { name: "rows", type: "BIGINT" },
      ...["admit_ms", "ms", "commit_ms", "deliver_ms"].map((name) => ({ name, type: "DOUBLE", title: name === "ms" ? "run" : name.slice(0, -3), show: ms })),
      { name: "level_ms", title: "levels", show: (v) => (v || []).map((x) => ms(x)).join(" + ") }, { name: "skew", type: "DOUBLE" }, { name: "note", show: (v) => v ?? "" },
    ], ran.toReversed(), { label: "Epochs by phase" }));
    lineChart(rate, ran.map((e) => [e.epoch, e.rows]), "Rows per epoch");
    lineChart(backlog, ran.filter((e) => e.backlog_rows !== null).map((e) => [e.epoch, e.backlog_rows]), "Rows that the sources have and no epoch has read");
    replace(marks, table([{ name: "step" }, { name: "watermark", show: clock }, { name: "event_lag_ms", title: "behind newest", type: "DOUBLE", show: ms }, { name: "processing_lag_ms", title: "behind clock", type: "DOUBLE", show: ms }, { name: "state" }, { name: "late_rows", title: "late", type: "BIGINT" }], watermarks, { label: "Watermarks", empty: "No step has a watermark." }));
    replace(jobs, table([{ name: "job" }, { name: "what" }, { name: "state" }, { name: "done", type: "BIGINT", show: (v, job) => (v === null ? "" : job.total ? `${number(v)} of ${number(job.total)} ${job.unit}` : `${number(v)} ${job.unit}`) }, { name: "note" , show: (v) => v ?? "" }], running, { label: "Jobs", empty: "No backfill, compaction or delivery is running." }));
  }
  return { update };
}

function tile(name, value, note, kind, page) {
  const shown = kind && page ? h("a", { href: page, title: "show them" }, value) : value;
  return h("div", { class: `tile ${kind || ""}` }, h("dt", {}, name), h("dd", {}, shown, h("small", {}, note)));
}
function quantile(values, q) { const sorted = [...values].sort((a, b) => a - b); return sorted.length ? sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))] : null; }
function latest(epochs, name) { return epochs.findLast((e) => e[name] !== null)?.[name] ?? null; }

function perSecond(ran) {
  const busy = ran.filter((e) => e.rows > 0);
  if (!busy.length) return 0;
  const span = time(busy.at(-1).at) - time(busy[0].at) + busy.at(-1).ms;
  return span > 0 ? (busy.reduce((sum, e) => sum + e.rows, 0) * 1000) / span : 0;
}

function told(e) {
  const parts = [`epoch ${e.epoch}`, clock(e.at), plural(e.rows ?? 0, "row"), `run ${ms(e.ms)}`];
  (e.level_ms || []).forEach((x, n) => parts.push(`level ${n} ${ms(x)}`));
  if (e.admit_ms !== null) parts.push(`admit ${ms(e.admit_ms)}`);
  if (e.commit_ms !== null) parts.push(`commit ${ms(e.commit_ms)}`);
  if (e.deliver_ms !== null) parts.push(`deliver ${ms(e.deliver_ms)}`);
  if (e.note) parts.push(e.note);
  return parts.join(" · ");
}
