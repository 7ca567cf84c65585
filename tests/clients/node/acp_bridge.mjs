// The public TypeScript client, driven by lines of JSON: node acp_bridge.mjs COMMAND…
// The words are those of tests/support/acp_bridge_program.py.
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { Readable, Writable } from "node:stream";
import * as acp from "@agentclientprotocol/sdk";

const say = (frame) => process.stdout.write(JSON.stringify(frame) + "\n");
const open = new Map();
let questions = 0;

const ask = (method) => ({ params }) =>
  new Promise((resolve) => {
    const key = ++questions;
    open.set(key, resolve);
    say({ event: "question", key, method, params });
  });

const app = acp
  .client({ name: "bridge" })
  .onNotification(acp.methods.client.session.update, ({ params }) => say({ event: "update", params }));
for (const method of [
  acp.methods.client.session.requestPermission,
  ...Object.values(acp.methods.client.fs),
  ...Object.values(acp.methods.client.terminal),
]) {
  app.onRequest(method, ask(method));
}

const [command, ...args] = process.argv.slice(2);
const agent = spawn(command, args, { stdio: ["pipe", "pipe", "inherit"] });
const connection = app.connect(acp.ndJsonStream(Writable.toWeb(agent.stdin), Readable.toWeb(agent.stdout)));

const lines = createInterface({ input: process.stdin, crlfDelay: Infinity });
lines.on("line", (line) => {
  const frame = JSON.parse(line);
  if ("key" in frame) {
    open.get(frame.key)(frame.result);
  } else if ("notify" in frame) {
    connection.agent.notify(frame.notify, frame.params);
  } else {
    connection.agent.request(frame.method, frame.params).then(
      (result) => say({ id: frame.id, result: result ?? {} }),
      (error) => say({ id: frame.id, error: { code: error.code, message: String(error.message) } }),
    );
  }
});
lines.on("close", () => agent.stdin.end());
agent.on("exit", (code) => process.exit(code ?? 1));
