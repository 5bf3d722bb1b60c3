// The plan as levels and steps.  Only boxes in view are in the document, so 1,000 steps scroll smoothly.

import { rows } from "./api.js";
import { bytes, clock, h, ms, number, plural, replace, s } from "./dom.js";

const WIDTH = 236, HEIGHT = 74, GAP_X = 84, GAP_Y = 14, HEAD = 58, PAD = 14;
const COLLAPSE_FROM = 60; // steps: from here on the steps of one object in a level are one box
const FOLD_FROM = 8, FOLD_TO = 4; // boxes of a level: from here on only the slowest are drawn, the others are one box

export async function plan(place, pond, [wanted]) {
  const search = h("input", { type: "search", placeholder: "Find a step  ( / )", "aria-label": "Find a step", size: 26 });
  const found = h("span", { class: "muted", role: "status" });
  const collapse = h("input", { type: "checkbox" }), sorted = h("input", { type: "checkbox", checked: true });
  const hottest = h("ol", { class: "list", "aria-label": "Slowest steps" });
  const facts = h("div", { class: "panel", "aria-live": "polite" }, h("h2", {}, "Step"), h("p", { class: "muted" }, "Choose a box to see its facts."));
  const scroll = h("div", { class: "plan", tabindex: "0", role: "region", "aria-label": "Plan: levels from left to right" });
  replace(place, h("h1", {}, "Plan"),
    h("p", { class: "row" }, search, found, h("span", { class: "grow" }), h("label", {}, collapse, "one box per object"), h("label", {}, sorted, "slowest first")),
    scroll,
    h("p", { class: "muted" }, "The bar of a box is its share of the time of all steps in the last 20 epochs, red from 30 %; the time at its right is its watermark. Thick lines are exchanges: rows are shuffled to the task that owns their key."),
    h("div", { class: "cols" }, h("div", { class: "panel" }, h("h2", {}, "Slowest steps"), hottest), facts));

  let steps = [], last = null, boxes = [], edges = [], size = [0, 0], chosen = wanted || null, open = new Set(), touched = false, drawnKey = "";

  async function update() {
    const [listed, epochs] = await Promise.all([
      rows("SELECT * FROM millpond.steps"),
      rows("SELECT * FROM millpond.epochs WHERE level_ms IS NOT NULL ORDER BY epoch DESC LIMIT 20"),
    ]);
    steps = listed.map((step) => ({ ...step, from: step.inputs ? step.inputs.split(", ") : [] }));
    last = epochs;
    if (!touched) collapse.checked = steps.length > COLLAPSE_FROM;
    arrange();
    slowest();
    if (chosen) tell(chosen);
  }

  // -- layout -------------------------------------------------------------------------

  function arrange() {
    const owner = (step) => (collapse.checked && !open.has(owned(step)) ? owned(step) : step.step);
    const made = new Map(), of = new Map();
    for (const step of steps) {
      const id = `${step.level ?? 0} ${owner(step)}`;
      if (!made.has(id)) made.set(id, { id, level: step.level ?? 0, title: owner(step), steps: [] });
      made.get(id).steps.push(step);
      of.set(step.step, made.get(id));
    }
    boxes = [...made.values()];
    for (const box of boxes) { box.ms = sum(box.steps, "ms"); if (box.steps.length === 1) box.title = box.steps[0].step; }
    const total = sum(boxes, "ms") || 1, levels = [];
    for (const box of boxes) (levels[box.level] ||= []).push(box);
    levels.forEach((level, n) => { if (level && collapse.checked && !open.has(n)) levels[n] = folded(level, n, of); });
    boxes = levels.flat();
    levels.forEach((level, n) => {
      if (sorted.checked) level.sort((a, b) => Boolean(a.fold) - Boolean(b.fold) || b.ms - a.ms);
      level.forEach((box, place) => Object.assign(box, { x: PAD + n * (WIDTH + GAP_X), y: HEAD + PAD + place * (HEIGHT + GAP_Y), share: box.ms / total }));
    });
    const seen = new Map();
    for (const step of steps) for (const source of step.from) {
      const a = of.get(source), b = of.get(step.step);
      if (a && b && a !== b) seen.set(`${a.id}|${b.id}`, { a, b, exchange: a.level !== b.level });
    }
    edges = [...seen.values()];
    size = [2 * PAD + levels.length * (WIDTH + GAP_X) - GAP_X, HEAD + 2 * PAD + Math.max(1, ...levels.map((l) => l?.length ?? 0)) * (HEIGHT + GAP_Y)];
    draw(levels, true);
  }

  // The slowest boxes of a level, those that were asked for, and one box for all others.
  function folded(level, n, of) {
    if (level.length <= FOLD_FROM) return level;
    const slow = [...level].sort((a, b) => b.ms - a.ms).slice(0, FOLD_TO), shown = level.filter((box) => slow.includes(box) || open.has(owned(box.steps[0])));
    const rest = level.filter((box) => !shown.includes(box)).flatMap((box) => box.steps);
    if (!rest.length) return level;
    const more = { id: `${n} more`, level: n, title: `${level.length - shown.length} more objects`, steps: rest, ms: sum(rest, "ms"), fold: true };
    for (const step of rest) of.set(step.step, more);
    return [...shown, more];
  }

  let levelsDrawn = [];
  function draw(levels = levelsDrawn, force = false) {
    levelsDrawn = levels;
    const top = scroll.scrollTop - 300, end = scroll.scrollTop + scroll.clientHeight + 300, left = scroll.scrollLeft - 300, right = scroll.scrollLeft + scroll.clientWidth + 300;
    const visible = (box) => box.y + HEIGHT > top && box.y < end && box.x + WIDTH > left && box.x < right;
    const shown = boxes.filter(visible), key = shown.map((box) => box.id).join();
    if (!force && key === drawnKey) return;
    drawnKey = key;
    const focused = document.activeElement?.closest?.(".node")?.dataset.id, word = search.value.trim().toLowerCase();
    const svg = s("svg", { width: Math.max(size[0], 300), height: size[1], role: "group", "aria-label": `${plural(steps.length, "step")} in ${plural(levels.length, "level")}` });
    levels.forEach((level, n) => svg.append(lane(n, level)));
    const lines = edges.filter(({ a, b }) => visible(a) || visible(b)).slice(0, 1500);
    for (const { a, b, exchange } of lines) svg.append(line(a, b, exchange));
    for (const box of shown) svg.append(node(box, word));
    replace(scroll, svg);
    if (focused) svg.querySelector(`[data-id="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
  }

  function lane(n, level) {
    const x = PAD + n * (WIDTH + GAP_X), times = last.map((e) => e.level_ms?.[n]).filter((v) => v !== undefined), skews = last.map((e) => e.level_skew?.[n]).filter((v) => v);
    const mean = times.length ? times.reduce((a, b) => a + b, 0) / times.length : null, skew = skews.length ? skews.reduce((a, b) => a + b, 0) / skews.length : null;
    const all = last.map((e) => Math.max(...(e.level_ms || [0]))), most = Math.max(1e-9, ...all);
    return s("g", {},
      s("rect", { class: "lane", x: x - 6, y: 4, width: WIDTH + 12, height: size[1] - 8, rx: 8 }),
      s("text", { class: "title", x, y: 24 }, `Level ${n}`),
      s("text", { class: "sub", x: x + WIDTH, y: 24, "text-anchor": "end" }, plural(steps.filter((step) => (step.level ?? 0) === n).length, "step")),
      s("text", { class: "sub", x, y: 42 }, mean === null ? "did not run lately" : `slowest task ${ms(mean)} · skew ${skew ? skew.toFixed(2) + " ×" : "–"}`),
      s("rect", { class: "track", x, y: 48, width: WIDTH, height: 4, rx: 2 }),
      s("rect", { class: skew > 2 ? "hot" : "heat", x, y: 48, width: WIDTH * Math.min(1, (mean ?? 0) / most), height: 4, rx: 2 }));
  }

  function line(a, b, exchange) {
    const near = chosen && (a.steps.some((x) => x.step === chosen) || b.steps.some((x) => x.step === chosen));
    const kind = `edge ${exchange ? "exchange" : ""} ${near ? "near" : ""}`;
    if (a.level === b.level) { const x = a.x + WIDTH, bow = Math.min(40, 12 + Math.abs(a.y - b.y) / 12); return s("path", { class: kind, d: `M${x} ${a.y + HEIGHT / 2}C${x + bow} ${a.y + HEIGHT / 2} ${x + bow} ${b.y + HEIGHT / 2} ${x} ${b.y + HEIGHT / 2}` }); }
    const x1 = a.x + WIDTH, y1 = a.y + HEIGHT / 2, x2 = b.x, y2 = b.y + HEIGHT / 2, mid = (x1 + x2) / 2;
    return s("path", { class: kind, d: `M${x1} ${y1}C${mid} ${y1} ${mid} ${y2} ${x2} ${y2}` });
  }

  function node(box, word) {
    const many = box.steps.length > 1, first = box.steps[0];
    const hit = word && box.steps.some((step) => matches(step, word)), mark = Math.min(...box.steps.map((x) => x.watermark ? Date.parse(x.watermark + "Z") : Infinity));
    const gave = box.steps.length === 1 ? first.rows : sum(box.steps, "rows"), state = box.steps.some((x) => x.state_bytes !== null) ? sum(box.steps, "state_bytes") : null;
    const label = `${box.title}, ${many ? plural(box.steps.length, "step") : first.operator}: ${ms(box.ms)}, ${Math.round(box.share * 100)} % of the time, ${number(gave)} rows, state ${bytes(state)}${Number.isFinite(mark) ? `, watermark ${new Date(mark).toISOString().slice(0, 19)}` : ""}`;
    const hot = box.share > 0.3 && boxes.length > 2;
    const made = s("g", { class: `node ${hit ? "found" : word ? "dim" : ""} ${box.steps.some((x) => x.step === chosen) ? "chosen" : ""}`, transform: `translate(${box.x} ${box.y})`, tabindex: "0", role: "button", "aria-label": label, "data-id": box.id, "data-step": first.step },
      s("title", {}, label),
      s("rect", { class: "box", width: WIDTH, height: HEIGHT, rx: 7 }),
      s("text", { class: "title", x: 10, y: 19 }, cut(box.title, Number.isFinite(mark) ? 21 : 29)),
      s("text", { class: "sub", x: 10, y: 35 }, cut(many ? `${plural(box.steps.length, "step")} ▸` : first.operator, 35)),
      s("text", { class: "sub", x: 10, y: 51 }, cut(`${ms(box.ms || null)} · ${number(gave)} rows${state === null ? "" : " · " + bytes(state)}`, 40)),
      Number.isFinite(mark) ? s("text", { class: "sub mark", x: WIDTH - 10, y: 19, "text-anchor": "end" }, new Date(mark).toISOString().slice(11, 19)) : null,
      s("rect", { class: "track", x: 10, y: 60, width: WIDTH - 20, height: 6, rx: 3 }),
      s("rect", { class: hot ? "hot" : "heat", x: 10, y: 60, width: (WIDTH - 20) * Math.min(1, box.share), height: 6, rx: 3 }));
    const choose = () => {
      if (box.fold) { open.add(box.level); arrange(); return; }
      if (many) { open.add(box.title); arrange(); }
      select(first.step);
    };
    made.addEventListener("click", choose);
    made.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") { event.preventDefault(); choose(); }
      const level = boxes.filter((one) => one.level === box.level).sort((p, q) => p.y - q.y), at = level.indexOf(box);
      const go = { ArrowDown: level[at + 1], ArrowUp: level[at - 1], ArrowRight: edges.find((e) => e.a === box)?.b, ArrowLeft: edges.find((e) => e.b === box)?.a }[event.key];
      if (go) { event.preventDefault(); focus(go); }
    });
    return made;
  }

  function focus(box) {
    scroll.scrollTo({ top: Math.max(0, box.y - scroll.clientHeight / 2), left: Math.max(0, box.x - scroll.clientWidth / 2) });
    draw(levelsDrawn, true);
    scroll.querySelector(`[data-id="${CSS.escape(box.id)}"]`)?.focus({ preventScroll: true });
  }

  // -- facts ---------------------------------------------------------------------------

  function select(step) { chosen = step; tell(step); draw(levelsDrawn, true); }

  function tell(name) {
    const step = steps.find((one) => one.step === name);
    if (!step) return;
    const total = sum(steps, "ms") || 1, next = steps.filter((one) => one.from.includes(name));
    const link = (other) => h("button", { type: "button", onclick: () => go(other) }, other);
    replace(facts, h("h2", {}, step.step), h("dl", { class: "facts" }, [
      ["Operator", step.operator], ["Level", step.level], ["Time", `${ms(step.ms)} in ${plural(step.epochs, "epoch")} (${Math.round((100 * (step.ms ?? 0)) / total)} % of all steps)`],
      ["Rows", step.rows === null ? "–" : `${number(step.rows)} out`], ["State", step.state_bytes === null ? "none" : `${number(step.state_rows)} rows, ${bytes(step.state_bytes)}, ${plural(step.state_runs, "run")}`],
      ["Watermark", clock(step.watermark)], ["View", step.relation ? h("a", { href: `#/views/${encodeURIComponent(step.relation.split(", ")[0])}` }, step.relation) : "none"],
      ["Reads", step.from.length ? step.from.map(link) : "a source"], ["Read by", next.length ? next.map((one) => link(one.step)) : "nothing"],
    ].flatMap(([key, value]) => [h("dt", {}, key), h("dd", {}, value)])));
  }

  function go(name) {
    const step = steps.find((one) => one.step === name);
    if (collapse.checked && step) { open.add(owned(step)); arrange(); }
    const box = boxes.find((one) => one.steps.some((x) => x.step === name));
    select(name);
    if (box) focus(box);
  }

  function slowest() {
    const total = sum(steps, "ms") || 1, top = [...steps].filter((x) => x.ms).sort((a, b) => b.ms - a.ms).slice(0, 8);
    replace(hottest, top.map((step) => h("li", {}, h("button", { type: "button", onclick: () => go(step.step) }, step.step, h("small", {}, `${ms(step.ms)} · ${Math.round((100 * step.ms) / total)} %`)))));
    if (!top.length) replace(hottest, h("li", { class: "muted" }, "No step ran in the last epochs."));
  }

  const matches = (step, word) => step.step.toLowerCase().includes(word) || (step.relation || "").toLowerCase().includes(word) || (step.operator || "").toLowerCase().includes(word);
  search.addEventListener("input", () => {
    const word = search.value.trim().toLowerCase(), hits = word ? steps.filter((step) => matches(step, word)) : [];
    found.textContent = word ? `${plural(hits.length, "step")} found` : "";
    draw(levelsDrawn, true);
  });
  search.addEventListener("keydown", (event) => {
    const word = search.value.trim().toLowerCase(), hit = word && event.key === "Enter" && (steps.find((step) => step.step.toLowerCase() === word) || steps.find((step) => matches(step, word)));
    if (hit) { event.preventDefault(); go(hit.step); }
  });
  collapse.addEventListener("change", () => { touched = true; open = new Set(); arrange(); });
  sorted.addEventListener("change", () => arrange());
  scroll.addEventListener("scroll", () => requestAnimationFrame(() => draw()));
  return { update };
}

const owned = (step) => step.step.split(".")[0];
const sum = (list, name) => list.reduce((total, one) => total + (one[name] ?? 0), 0);
const cut = (text, most) => (text.length > most ? text.slice(0, most - 1) + "…" : text);
