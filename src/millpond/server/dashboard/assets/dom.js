// Builds elements, tables and small texts; nothing here knows of ponds.

const SVG = "http://www.w3.org/2000/svg";

export function h(tag, attributes = {}, ...children) { return fill(document.createElement(tag), attributes, children); }
export function s(tag, attributes = {}, ...children) { return fill(document.createElementNS(SVG, tag), attributes, children); }

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value" && "value" in element) element.value = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export function replace(element, ...children) { element.replaceChildren(...children.flat(Infinity).filter(Boolean)); return element; }

export function number(value, digits = 0) {
  if (value === null || value === undefined) return "–";
  if (Math.abs(value) >= 1e9) return (value / 1e9).toFixed(2) + " G";
  if (Math.abs(value) >= 1e6) return (value / 1e6).toFixed(2) + " M";
  if (Math.abs(value) >= 1e4) return (value / 1e3).toFixed(1) + " K";
  return Number(value).toLocaleString("en", { maximumFractionDigits: digits });
}

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  for (const [unit, size] of [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]]) if (value >= size) return (value / size).toFixed(1) + " " + unit;
  return value + " B";
}

export function ms(value) {
  if (value === null || value === undefined) return "–";
  if (value < 1) return value.toFixed(2) + " ms";
  if (value < 1000) return value.toFixed(value < 10 ? 1 : 0) + " ms";
  return value < 60000 ? (value / 1000).toFixed(1) + " s" : ago(value / 1000);
}

export function ago(seconds) {
  for (const [unit, size] of [["d", 86400], ["h", 3600], ["min", 60]]) if (seconds >= size) return (seconds / size).toFixed(seconds < 10 * size ? 1 : 0) + " " + unit;
  return Math.max(0, seconds).toFixed(seconds < 10 ? 1 : 0) + " s";
}

// Times of a pond are in UTC and have no zone.
export function time(value) { return value === null || value === undefined ? null : Date.parse(String(value).replace(" ", "T").replace(/Z?$/, "Z")); }
export function clock(value) { return value === null || value === undefined ? "–" : String(value).replace("T", " ").replace(/(\.\d{3})\d+/, "$1").replace("Z", ""); }
export function plural(count, word) { return `${number(count)} ${word}${count === 1 ? "" : "s"}`; }

export function cell(value) {
  if (value === null || value === undefined) return h("span", { class: "null" }, "NULL");
  if (typeof value === "object") return JSON.stringify(value);
  return String(value);
}

const NUMERIC = /^(TINYINT|SMALLINT|INTEGER|BIGINT|HUGEINT|U\w+INT\w*|DOUBLE|FLOAT|DECIMAL)/;

// A table in a box that scrolls and can be reached by keyboard.  `columns`: {name, type, title?, show?, wrap?}.
export function table(columns, rows, { label, rowClass, empty = "There is nothing here." } = {}) {
  if (!rows.length) return h("p", { class: "muted" }, empty);
  const kind = (column) => (column.wrap ? "wrap" : NUMERIC.test(column.type || "") ? "num" : null);
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label },
    h("table", {},
      h("thead", {}, h("tr", {}, columns.map((c) => h("th", { scope: "col", class: kind(c) }, c.title ?? c.name, c.hint && h("small", {}, c.hint))))),
      h("tbody", {}, rows.map((row) => h("tr", { class: rowClass?.(row) }, columns.map((c) => {
        const shown = c.show ? c.show(row[c.name], row) : cell(row[c.name]);
        return h("td", { class: kind(c), title: typeof shown === "string" && shown.length > 40 ? shown : null }, shown);
      }))))));
}

export function failure(error) {
  const parts = [error.message, error.detail && `detail: ${error.detail}`, error.hint && `hint: ${error.hint}`];
  return h("div", { class: "error mono", role: "alert" }, parts.filter(Boolean).join("\n"));
}

export function toast(text) {
  const place = document.getElementById("toast");
  place.textContent = text;
  clearTimeout(place.timer);
  place.timer = setTimeout(() => (place.textContent = ""), 5000);
}
