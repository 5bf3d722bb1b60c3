// Talks to the server: SQL, facts of the pond, actions and new epochs.

export class Failure extends Error {
  constructor(status, found) {
    super(found.message || `the server answered ${status}`);
    Object.assign(this, { status, detail: found.detail, hint: found.hint });
  }
}

async function call(path, options = {}) {
  let answer;
  try { answer = await fetch(path, { credentials: "same-origin", ...options }); }
  catch { throw new Failure(0, { message: "the server does not answer", hint: "is it still running?" }); }
  const body = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Failure(answer.status, body.error || body);
  return body;
}

const post = (path, body, signal) => call(path, { method: "POST", headers: { "Content-Type": "application/json", Accept: "application/json" }, body: JSON.stringify(body), signal });

// → {columns: [{name, type}], rows: [{…}], status, epoch, warnings}
export const sql = (text, params = null, more = {}) => post("v1/sql", { sql: text, ...(params ? { params } : {}), ...more });
export const rows = async (text, params) => (await sql(text, params)).rows;
export const info = () => call("dashboard/info");
export const act = (name, fields) => post(`dashboard/actions/${name}`, fields);
export const quoted = (name) => `"${String(name).replaceAll('"', '""')}"`;

export function onEpoch(told, lost) {
  const source = new EventSource("dashboard/events");
  source.addEventListener("epoch", (event) => told(Number(event.data)));
  source.addEventListener("error", () => lost());
  source.addEventListener("open", () => told(null));
}
