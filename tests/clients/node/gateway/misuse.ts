// What the compiler must refuse. Each line below is an error; the test checks that none is missing.
import { GatewayClient } from "./client.js";

const client = new GatewayClient(() => {});
// @ts-expect-error there is no such method
void client.call("session.nonsense", {});
// @ts-expect-error session_id is missing
void client.call("session.history", {});
// @ts-expect-error text is no number
void client.call("session.steer", { session_id: "1a2b3c4d", text: 1 });
// @ts-expect-error undeclared key
void client.call("session.history", { session_id: "1a2b3c4d", nonsense: true });
client.onEvent = (event) => {
  // @ts-expect-error a delta has no status
  if (event.type === "message.delta") void event.payload.status;
};
