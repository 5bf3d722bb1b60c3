// Programs and their changes, savepoints, and what a person with permission can do: rollback, fork, rescale.

import { act, rows } from "./api.js";
import { clock, failure, h, plural, replace, table, toast } from "./dom.js";

export async function history(place, pond) {
  const savepoints = h("div", {}), programs = h("div", {}), actions = h("div", {}), detail = h("div", { "aria-live": "polite" });
  replace(place, h("h1", {}, "History"),
    h("div", { class: "cols" }, h("section", { class: "panel" }, h("h2", {}, "Savepoints"), savepoints), h("section", { class: "panel" }, h("h2", {}, "Actions"), actions)),
    h("section", { class: "panel" }, h("h2", {}, "Programs and their changes"), programs, detail));
  const may = () => pond.info?.may || {};

  async function ask(title, text, fields, button, kind, work) {
    const inputs = fields.map(([name, label, options]) => h("label", { class: "stack" }, label, h("input", { name, required: true, autocomplete: "off", ...options })));
    const wrong = h("div", {}), dialog = h("dialog", { "aria-labelledby": "ask-title" });
    const form = h("form", { method: "dialog" }, h("h2", { id: "ask-title" }, title), h("p", {}, text), inputs, wrong, h("p", { class: "row" }, h("button", { type: "submit", class: kind }, button), h("button", { type: "button", onclick: () => dialog.close() }, "Cancel")));
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      const done = form.querySelector("button[type=submit]");
      done.disabled = true;
      try { const found = await work(Object.fromEntries(new FormData(form))); dialog.close(); toast(found.done); await update(); }
      catch (error) { replace(wrong, failure(error)); done.disabled = false; }
    });
    dialog.append(form);
    dialog.addEventListener("close", () => dialog.remove());
    document.body.append(dialog);
    dialog.showModal();
  }

  const rollback = (epoch, name) => ask(`Roll back to ${name}`, "A new epoch will name the files of that one. Views, subscribers and changelog sinks receive the difference; nothing is deleted.", [], "Roll back", "danger", () => act("rollback", { epoch }));
  const number = (text) => (/^\d+$/.test(text) ? Number(text) : text);

  function buttons() {
    const can = may(), made = [];
    if (can.savepoint) made.push(h("button", { type: "button", onclick: () => ask("New savepoint", "The newest epoch gets a name and is kept until the savepoint is dropped.", [["name", "Name"]], "Create", "primary", (f) => act("savepoint", { name: f.name })) }, "Savepoint …"));
    if (can.fork) made.push(h("button", { type: "button", onclick: () => ask("Fork", "A new pond begins with the files of an epoch. Its sinks are detached.", [["path", "Folder or address of the new pond"], ["epoch", "Epoch or savepoint", { value: pond.epoch ?? "" }]], "Fork", "primary", (f) => act("fork", { path: f.path, epoch: number(f.epoch) })) }, "Fork …"));
    if (can.rescale) made.push(h("button", { type: "button", onclick: () => ask("Rescale", "The next epochs run this number of tasks in each level. No state moves.", [["parallelism", "Tasks", { type: "number", min: 1, max: 4096, value: pond.info.parallelism ?? 1 }]], "Rescale", "primary", (f) => act("rescale", { parallelism: Number(f.parallelism) })) }, "Rescale …"));
    if (can.rollback) made.push(h("button", { type: "button", onclick: () => ask("Roll back", "A new epoch will name the files of an older one. Views, subscribers and changelog sinks receive the difference; nothing is deleted.", [["epoch", "Epoch or savepoint"]], "Roll back", "danger", (f) => act("rollback", { epoch: number(f.epoch) })) }, "Roll back …"));
    const key = made.length + JSON.stringify(can) + pond.info?.parallelism;
    if (actions.key === key) return;
    actions.key = key;
    replace(actions, h("p", {}, `${pond.info?.user} · parallelism ${pond.info?.parallelism ?? "–"}`), made.length ? h("div", { class: "row" }, made) : h("p", { class: "muted" }, "You may read this pond, but not change it."));
  }

  async function update() {
    buttons();
    const [named, changed] = await Promise.all([
      rows("SELECT s.name, s.epoch, e.at FROM millpond.savepoints s LEFT JOIN millpond.epochs e USING (epoch) ORDER BY s.epoch DESC"),
      rows("SELECT epoch, kind, at, note FROM millpond.epochs WHERE kind <> 'epoch' ORDER BY epoch DESC"),
    ]);
    const key = JSON.stringify([named, changed, may()]);
    if (savepoints.key === key) return;
    savepoints.key = key;
    replace(savepoints, table([{ name: "name" }, { name: "epoch", type: "BIGINT" }, { name: "at", show: (v) => clock(v).slice(0, 19) }, { name: "do", title: h("span", { class: "hidden" }, "Actions"), show: (_, one) => h("span", { class: "row" },
      may().rollback && h("button", { type: "button", "aria-label": `Roll back to ${one.name}`, onclick: () => rollback(one.name, `savepoint ${one.name}`) }, "Roll back"),
      may().drop_savepoint && h("button", { type: "button", "aria-label": `Drop ${one.name}`, onclick: () => ask(`Drop savepoint ${one.name}`, "Its epoch may be collected once it is older than the history that is kept.", [], "Drop", "danger", () => act("drop_savepoint", { name: one.name })) }, "Drop")) }], named, { label: "Savepoints", empty: "No epoch has a name." }));
    replace(programs, table([{ name: "epoch", type: "BIGINT" }, { name: "kind" }, { name: "at", show: (v) => clock(v).slice(0, 19) }, { name: "note", wrap: true, show: (v) => v ?? "" }, { name: "do", title: h("span", { class: "hidden" }, "Actions"), show: (_, one) => h("button", { type: "button", "aria-label": `Definitions of epoch ${one.epoch}`, onclick: () => compare(one) }, "Definitions") }], changed, { label: "Changes of the program" }));
  }

  // What an epoch defined, compared with the epoch before it.
  async function compare(one) {
    try {
      const query = (epoch) => rows(`SELECT name, kind, columns, definition FROM millpond.objects AS OF EPOCH ${epoch} ORDER BY name`);
      const now = await query(one.epoch), before = one.epoch > 0 ? await query(one.epoch - 1).catch(() => []) : [];
      const text = (o) => o.definition || `-- ${o.kind} of Python: ${o.name} (${o.columns})`, old = new Map(before.map((o) => [o.name, text(o)])), fresh = new Map(now.map((o) => [o.name, text(o)]));
      const lines = [...new Set([...old.keys(), ...fresh.keys()])].sort().flatMap((name) => old.get(name) === fresh.get(name) ? [h("div", {}, "  " + fresh.get(name))] : [old.has(name) && h("del", {}, "− " + old.get(name)), fresh.has(name) && h("ins", {}, "+ " + fresh.get(name))]);
      replace(detail, h("h3", {}, `Definitions at epoch ${one.epoch}`), h("p", { class: "muted" }, plural(now.length, "object")), h("pre", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Definitions" }, lines));
      detail.scrollIntoView({ block: "nearest" });
    } catch (error) { replace(detail, failure(error)); }
  }
  return { update };
}
