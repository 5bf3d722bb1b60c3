// The frame of the page: navigation, live status, colours.

import { info, onEpoch } from "./api.js";
import { ago, failure, h, replace } from "./dom.js";
import { flow } from "./flow.js";
import { history } from "./history.js";
import { overview } from "./overview.js";
import { plan } from "./plan.js";
import { prompt } from "./prompt.js";
import { tables } from "./tables.js";
import { views } from "./views.js";

const PAGES = { overview, plan, views, sql: prompt, flow, tables, history };
const REFRESH_MS = 1000; // at most once: an epoch may take less
const main = document.getElementById("main");
export const pond = { info: null, epoch: null };
let page = null, refreshing = false, waiting = false, last = 0, committed = null;

async function show() {
  const [name, ...rest] = location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
  if (location.hash === "#main") return main.focus();
  const made = PAGES[name] || overview;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#/${name || "overview"}`) { link.setAttribute("aria-current", "page"); link.scrollIntoView({ block: "nearest", inline: "nearest" }); document.title = `${link.textContent} – Millpond`; }
    else link.removeAttribute("aria-current");
  }
  page?.leave?.();
  const place = h("div", {});
  replace(main, place);
  const mine = (page = { update: null });
  try {
    const built = await made(place, pond, rest);
    if (page === mine) { page = built || {}; await refresh(true); } else built?.leave?.();
  } catch (error) { console.debug(error); replace(place, failure(error)); }
}

async function refresh(force = false) {
  if (refreshing) { waiting = true; return; }
  const pause = REFRESH_MS - (performance.now() - last);
  if (!force && pause > 0) { if (!waiting) { waiting = true; setTimeout(() => { waiting = false; refresh(); }, pause); } return; }
  refreshing = true;
  last = performance.now();
  try { await status(); await page?.update?.(); document.getElementById("lost")?.remove(); }
  catch (error) { lost(error); }
  finally { refreshing = false; if (waiting) { waiting = false; setTimeout(refresh, REFRESH_MS); } }
}

async function status() {
  const found = (pond.info = await info());
  pond.epoch = found.epoch;
  const name = document.getElementById("pond-name");
  name.textContent = found.pond.replace(/\/+$/, "").split("/").at(-1) || found.pond;
  name.title = found.pond;
  const elsewhere = found.elsewhere && found.state !== "running";
  const badge = document.getElementById("state");
  badge.textContent = elsewhere ? "running elsewhere" : found.state;
  badge.title = found.error || found.holder || "";
  badge.className = "badge " + (found.state === "failed" ? "bad" : found.state === "running" || elsewhere ? "good" : "");
  document.getElementById("head-epoch").textContent = found.epoch === null ? "no epoch yet" : `epoch ${found.epoch}`;
}

function lost(error) {
  const badge = document.getElementById("state");
  badge.textContent = error?.status ? "error" : "disconnected";
  badge.className = "badge bad";
  if (error?.status && !document.getElementById("lost")) main.prepend(h("div", { id: "lost" }, failure(error)));
}

// -- colours ----------------------------------------------------------------------

const dark = matchMedia("(prefers-color-scheme: dark)");
const CHOICES = ["system", "light", "dark"];
let choice = localStorage.getItem("millpond-theme") || "system";
function colours() {
  document.documentElement.dataset.theme = choice === "system" ? (dark.matches ? "dark" : "light") : choice;
  const button = document.getElementById("theme");
  button.textContent = { system: "◐", light: "☀", dark: "☾" }[choice];
  button.setAttribute("aria-label", `Colours: ${choice === "system" ? "as the system" : choice}`);
}
document.getElementById("theme").addEventListener("click", () => {
  choice = CHOICES[(CHOICES.indexOf(choice) + 1) % CHOICES.length];
  localStorage.setItem("millpond-theme", choice);
  colours();
});
dark.addEventListener("change", colours);
colours();

// -- start -------------------------------------------------------------------------

addEventListener("hashchange", async () => { await show(); if (location.hash !== "#main") { main.focus({ preventScroll: true }); scrollTo(0, 0); } });
addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement?.tagName)) return;
  const search = main.querySelector("input[type=search]");
  if (search) { event.preventDefault(); search.focus(); }
});
setInterval(() => {
  const age = committed === null ? "" : `${ago((Date.now() - committed) / 1000)} ago`;
  document.getElementById("head-age").textContent = age;
}, 1000);
let first = true;
onEpoch((epoch) => { if (epoch !== null) { if (!first) committed = Date.now(); first = false; refresh(); } }, () => lost());
show();
