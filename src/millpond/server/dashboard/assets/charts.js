// Draws time series as SVG: stacked bars of phases, and lines.

import { h, ms, number, replace, s } from "./dom.js";

const PHASES = [["admit", "admit"], ["l0", "level 0"], ["l1", "level 1"], ["l2", "level 2"], ["l3", "level 3 and later"], ["rest", "scheduling and exchange"], ["commit", "commit"], ["deliver", "deliver"]];

function phases(e) {
  const levels = e.level_ms || [], used = levels.reduce((sum, x) => sum + x, 0);
  return {
    admit: e.admit_ms ?? 0, l0: levels[0] ?? 0, l1: levels[1] ?? 0, l2: levels[2] ?? 0,
    l3: levels.slice(3).reduce((sum, x) => sum + x, 0), rest: Math.max(0, (e.ms ?? 0) - used),
    commit: e.commit_ms ?? 0, deliver: e.deliver_ms ?? 0,
  };
}

export function timeline(place, epochs, told) {
  if (!epochs.length) return replace(place, h("p", { class: "muted" }, "No epoch has run yet."));
  const width = Math.max(320, place.clientWidth || 800), height = 170, left = 54, bottom = 18;
  const parts = epochs.map(phases), sums = parts.map((p) => Object.values(p).reduce((a, b) => a + b, 0));
  const top = nice(Math.max(...sums)), room = (width - left) / Math.max(epochs.length, 24), y = (v) => (height - bottom) * (1 - v / top) + 4;
  const svg = s("svg", { class: "chart", viewBox: `0 0 ${width} ${height + 4}`, height: height + 4, role: "group", "aria-label": `The last ${epochs.length} epochs by phase, up to ${ms(top)}` });
  for (const share of [0, 0.5, 1]) svg.append(s("line", { class: "grid", x1: left, x2: width, y1: y(top * share), y2: y(top * share) }), s("text", { x: left - 6, y: y(top * share) + 4, "text-anchor": "end" }, ms(top * share)));
  epochs.forEach((e, n) => {
    const bar = s("g", { class: "bar", role: "img", tabindex: n === epochs.length - 1 ? "0" : "-1", "aria-label": `epoch ${e.epoch}: ${ms(sums[n])}, ${number(e.rows)} rows` });
    let at = 0;
    const x = left + n * room, w = Math.max(1.5, room - 2);
    for (const [name] of PHASES) {
      const v = parts[n][name];
      if (v > 0) bar.append(s("rect", { class: `f-${name}`, x, width: w, y: y(at + v), height: Math.max(0.5, y(at) - y(at + v)) }));
      at += v;
    }
    if (e.note) bar.append(s("circle", { class: "f-mark", cx: x + w / 2, cy: height - bottom + 10, r: 3 }));
    bar.append(s("rect", { class: "hit", x, width: room, y: 0, height: height }));
    bar.addEventListener("pointerenter", () => told(e));
    bar.addEventListener("focus", () => told(e));
    bar.addEventListener("keydown", (event) => {
      const next = { ArrowLeft: bar.previousElementSibling, ArrowRight: bar.nextElementSibling }[event.key];
      if (next?.classList.contains("bar")) { event.preventDefault(); bar.setAttribute("tabindex", "-1"); next.setAttribute("tabindex", "0"); next.focus(); }
    });
    svg.append(bar);
    if (n === 0 || n === epochs.length - 1) svg.append(s("text", { x: n ? x + w : x, y: height + 2, "text-anchor": n ? "end" : "start" }, `${n ? "" : "epoch "}${e.epoch}`));
  });
  const focused = document.activeElement?.closest?.(".bar")?.getAttribute("aria-label");
  replace(place, svg, h("ul", { class: "legend" }, PHASES.filter(([name]) => parts.some((p) => p[name] > 0)).map(([name, title]) => h("li", {}, s("svg", { viewBox: "0 0 10 10", "aria-hidden": "true" }, s("rect", { class: `f-${name}`, width: 10, height: 10, rx: 2 })), title))));
  if (focused) [...svg.querySelectorAll(".bar")].find((bar) => bar.getAttribute("aria-label") === focused)?.focus();
}

export function lineChart(place, points, label) {
  if (!points.length) return replace(place, h("p", { class: "muted" }, "There is nothing to draw yet."));
  const width = Math.max(260, place.clientWidth || 400), height = 120, left = 48, bottom = 16;
  const top = nice(Math.max(...points.map((p) => p[1] ?? 0))), first = points[0][0], span = Math.max(1, points.at(-1)[0] - first);
  const x = (v) => left + ((width - left - 6) * (v - first)) / span, y = (v) => 6 + (height - bottom - 6) * (1 - (v ?? 0) / top);
  const svg = s("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": `${label}: now ${number(points.at(-1)[1])}, at most ${number(Math.max(...points.map((p) => p[1] ?? 0)))}` });
  for (const share of [0, 0.5, 1]) svg.append(s("line", { class: "grid", x1: left, x2: width, y1: y(top * share), y2: y(top * share) }), s("text", { x: left - 6, y: y(top * share) + 4, "text-anchor": "end" }, number(top * share, top < 10 ? 1 : 0)));
  svg.append(s("polyline", { class: "s-accent", points: points.map((p) => `${x(p[0]).toFixed(1)},${y(p[1]).toFixed(1)}`).join(" ") }));
  svg.append(s("circle", { class: "f-accent", cx: x(points.at(-1)[0]), cy: y(points.at(-1)[1]), r: 3 }));
  svg.append(s("text", { x: left, y: height - 2 }, `epoch ${first}`), s("text", { x: width - 2, y: height - 2, "text-anchor": "end" }, points.at(-1)[0]));
  replace(place, svg);
}

function nice(value) {
  if (!(value > 0)) return 1;
  const unit = 10 ** Math.floor(Math.log10(value));
  return unit * [1, 2, 2.5, 4, 5, 8, 10].find((step) => value <= step * unit);
}
