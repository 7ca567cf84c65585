// A conversation with `hermes gateway` through the generated client: argv is the command to start.
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { GatewayClient, GatewayError, type GatewayEvent } from "./client.js";

const [command, ...argv] = process.argv.slice(2);
if (command === undefined) throw new Error("name the command to start");
const child = spawn(command, argv, { stdio: ["pipe", "pipe", "inherit"] });
const client = new GatewayClient((frame) => child.stdin.write(frame + "\n"));

const seen: string[] = [];
let said = "";
const waiting = new Map<string, (event: GatewayEvent) => void>();
client.onEvent = (event) => {
  seen.push(event.type);
  if (event.type === "message.delta") said += event.payload.text;
  waiting.get(event.type)?.(event);
  waiting.delete(event.type);
};
client.onRequest = (request) => {
  seen.push(`?${request.method}`);
  return request.method === "approval" ? { choice: "once" } : undefined;
};
function next<Type extends GatewayEvent["type"]>(type: Type): Promise<Extract<GatewayEvent, { type: Type }>> {
  return new Promise((resolve) => waiting.set(type, (event) => resolve(event as Extract<GatewayEvent, { type: Type }>)));
}

const ready = next("gateway.ready");
createInterface({ input: child.stdout }).on("line", (line) => client.receive(line));
const ended = new Promise<number | null>((resolve) => child.on("exit", resolve));

const epoch: string = (await ready).payload.replay_epoch;
const offered: string[] = (await client.call("client.capabilities", { server_requests: true })).server_requests;
const { session_id, info } = await client.call("session.create", { cwd: process.cwd() });
const complete = next("message.complete");
const submitted = await client.call("prompt.submit", { session_id, text: process.env["PROMPT"] ?? "hello" });
const end = (await complete).payload;
const history = await client.call("session.history", { session_id });
let refused = 0;
try {
  await client.call("session.history", { session_id: "00000000" });
} catch (error) {
  if (!(error instanceof GatewayError)) throw error;
  refused = error.error.code;
}
child.stdin.end();
console.log(
  JSON.stringify({
    epoch: epoch.length,
    asks: offered.includes("approval"),
    cwd: info.cwd === process.cwd(),
    status: submitted.status,
    end: end.status,
    same: end.text !== null && said.endsWith(end.text),
    used: end.usage.total > 0,
    roles: history.messages.map((message) => message.role),
    refused,
    tools: seen.filter((type) => type.startsWith("tool.") || type.startsWith("?")),
    code: await ended,
  }),
);
