// node-postgres: values, prepared statements, errors, a transaction and a cursor-less large result.
const { Client, types } = require("pg");

async function main(url) {
  const client = new Client({ connectionString: url });
  await client.connect();
  const one = await client.query("SELECT id, name, n, at IS NOT NULL AS dated FROM t WHERE id = $1", [1]);
  console.log(JSON.stringify(one.rows));
  for (let n = 0; n < 3; n++) {
    const named = { name: "by id", text: "SELECT name FROM t WHERE id = $1", values: [n] };
    console.log("named " + JSON.stringify((await client.query(named)).rows));
  }
  console.log(one.fields.map((f) => f.name + ":" + f.dataTypeID).join(" "));
  try {
    await client.query("SELECT * FROM nosuch");
  } catch (error) {
    console.log("error " + error.code + " " + error.position);
  }
  await client.query("BEGIN");
  await client.query("INSERT INTO t (id, name, n) VALUES ($1, $2, $3)", [50, "node", 2.5]);
  console.log("inside " + (await client.query("SELECT count(*) AS c FROM t WHERE id = 50")).rows[0].c);
  await client.query("ROLLBACK");
  console.log("after " + (await client.query("SELECT count(*) AS c FROM t WHERE id = 50")).rows[0].c);
  const several = await client.query("SELECT 1 AS a; SELECT 2 AS b");
  console.log("several " + several.map((r) => JSON.stringify(r.rows)).join(" "));
  const many = await client.query("SELECT i FROM range(20000) r(i)");
  console.log("many " + many.rowCount);
  console.log("json " + JSON.stringify((await client.query("SELECT [1, 2] AS a, {'k': 'v'} AS s")).rows[0]));
  await client.end();
}

main(process.argv[2]).catch((error) => {
  console.error(error);
  process.exit(1);
});
