// The page's one connection, what it does with what comes in, and how a session is brought on the page and kept there
// across lost connections and restarted servers.
import { batch } from "@preact/signals";
import { Connection, ConnectionLost, RpcError, type ConnectionState } from "./connection";
import * as model from "./conversation";
import type { Conversation } from "./conversation";
import * as store from "./store";
import * as timelines from "./timeline";
import { METHOD_NOT_FOUND, NO_SUCH_SESSION, type EventsSince, type GatewayEvent, type OpenRequest, type Snapshot } from "./wire";

let connection: Connection | null = null;
let epoch = "";
let loadNumber = 0;
/** Events that came while a session is being brought up to date: applied behind what was missed. */
let held: GatewayEvent[] | null = null;
/** Events wait for the next frame of the screen, so that a fast stream is drawn once a frame. */
let arrived: GatewayEvent[] = [];
let frameRequested = false;
/** The next turn to start is one that this page asked for: its prompt is on the page already. */
let expectsTurn = false;
/** Counts the starts and ends of turns on the page, so that an answer about one is not taken for another's. */
let turnChanges = 0;

/** An answer never overtakes an event that the server sent before it, though events wait for a frame of the screen. */
export async function call<Result = any>(method: string, params: Record<string, unknown> = {}): Promise<Result> {
  if (connection === null) throw new ConnectionLost("not connected");
  try {
    return await connection.call<Result>(method, params);
  } finally {
    applyArrived();
  }
}

/** Like `call`, but a failure is shown and gives null. */
export async function attempt<Result = any>(method: string, params: Record<string, unknown> = {}): Promise<Result | null> {
  try {
    return await call<Result>(method, params);
  } catch (error) {
    report(error);
    return null;
  }
}

export function report(error: unknown): void {
  if (error instanceof ConnectionLost) store.toast("Not connected to the server; try again in a moment.", "error");
  else if (error instanceof RpcError && error.code === METHOD_NOT_FOUND) store.toast(`This server does not offer that (${error.message}).`, "error");
  else store.toast(error instanceof Error ? error.message : String(error), "error");
}

export function answerRequest(id: string, result: unknown): boolean {
  const request = store.requests.value.find((known) => known.id === id);
  const sent = connection?.answer(id, result) ?? false;
  if (sent && request) mark(request, "answer");
  if (sent) store.requests.value = store.requests.value.filter((request) => request.id !== id);
  else store.toast("Not connected to the server; the question stays open.", "error");
  return sent;
}

export function expectTurn(expected = true): void {
  expectsTurn = expected;
}

// --- connection -----------------------------------------------------------------------------------------------------

export function connect(key: string): void {
  connection?.close();
  connection = new Connection(key, { state: onState, ready: onReady, event: onEvent, request: onRequest });
  connection.open();
}

export function disconnect(): void {
  const closing = connection;
  connection = null;
  closing?.close();
}

export function retryNow(): void {
  connection?.retryNow();
}

function onState(state: ConnectionState, detail: { reason?: string; retryAt?: number }): void {
  batch(() => {
    store.connection.value = state;
    store.retryAt.value = detail.retryAt ?? 0;
    if (state === "refused") {
      store.keepKey(null);
      store.wasOpen.value = false;
      store.loginError.value =
        detail.reason === "key" ? "The server does not accept this key." : `The server refused this page: ${detail.reason}.`;
    } else if (state === "waiting" && !store.wasOpen.value) {
      store.loginError.value = "The server does not answer.";
    } else if (state === "open") {
      store.wasOpen.value = true;
      store.loginError.value = null;
    }
  });
}

async function onReady(newEpoch: string): Promise<void> {
  const sameServer = newEpoch === epoch;
  epoch = newEpoch;
  store.requests.value = [];
  held = [];
  try {
    await declare();
    void call("tree.subscribe").then(() => call("tree.get")).then(onTree).catch(report);
    void refreshLists();
    void refreshCommands();
    const open = store.conversation.value;
    if (open !== null && sameServer) await catchUp(open);
    else if (open !== null) await load({ stored: open.key });
    else await openFirst();
  } catch (error) {
    if (!(error instanceof ConnectionLost)) report(error);
  } finally {
    const waiting: GatewayEvent[] = held ?? [];
    held = null;
    apply(waiting);
  }
}

async function declare(): Promise<void> {
  try {
    await call("client.capabilities", { server_requests: true, tool_progress: true, steers: true });
  } catch (error) {
    // A server that knows nothing of these refuses the words.
    if (!(error instanceof RpcError)) throw error;
    await call("client.capabilities", { server_requests: true });
  }
}

async function openFirst(): Promise<void> {
  const remembered = store.rememberedOpen();
  if (remembered !== null && (await load({ stored: remembered }))) return;
  await create();
}

// --- sessions -------------------------------------------------------------------------------------------------------

export async function create(): Promise<boolean> {
  loadNumber += 1;
  const made = await attempt<Snapshot>("session.create");
  if (made === null) return false;
  show(model.fromSnapshot(made, 0));
  void refreshLists();
  return true;
}

/** Bring a session on the page. False if there is no such session. */
export async function load(target: { runtime?: string; stored?: string }): Promise<boolean> {
  const number = ++loadNumber;
  held = [];
  store.loading.value = true;
  try {
    const snapshot = await snapshotOf(target);
    // What came before the snapshot is in it.
    if (number === loadNumber) held = [];
    const since = await call<EventsSince>("session.events.since", { session_id: snapshot.session_id, last_seen: 0 });
    if (number !== loadNumber) return true;
    show(rebuilt(snapshot, since));
    setRequests(snapshot.session_id, since.open_requests);
    return true;
  } catch (error) {
    if (error instanceof ConnectionLost) throw error;
    if (!(error instanceof RpcError)) report(error);
    return false;
  } finally {
    if (number === loadNumber) {
      held = null;
      store.loading.value = false;
    }
  }
}

async function snapshotOf(target: { runtime?: string; stored?: string }): Promise<Snapshot> {
  if (target.runtime !== undefined) {
    try {
      return await call<Snapshot>("session.activate", { session_id: target.runtime });
    } catch (error) {
      if (!(error instanceof RpcError && error.code === NO_SUCH_SESSION) || target.stored === undefined) throw error;
    }
  }
  return call<Snapshot>("session.resume", { session_id: target.stored });
}

/** The session as it is: its history, then its running turn from the events, or what the snapshot tells of it. */
function rebuilt(snapshot: Snapshot, since: EventsSince): Conversation {
  const waiting = (held ?? []).filter((event) => event.session_id === snapshot.session_id);
  const first = waiting.find((event) => event.seq !== undefined)?.seq;
  let next = model.fromSnapshot(snapshot, first === undefined ? since.latest_seq : first - 1);
  const start = since.events.findLastIndex((event) => event.type === "message.start");
  if (snapshot.inflight && snapshot.running && start >= 0) {
    const queued = next.queued;
    next = { ...model.withPrompt(next, snapshot.inflight), lastSeq: 0 };
    for (const event of since.events.slice(start)) next = model.applyEvent(next, event);
    next = { ...next, queued, lastSeq: since.latest_seq };
  } else if (snapshot.inflight) {
    next = model.withInflight(next, snapshot.inflight);
  }
  for (const event of waiting) next = model.applyEvent(next, event);
  return next;
}

/** After a short absence from the same server: only what was missed. */
async function catchUp(open: Conversation): Promise<void> {
  const number = ++loadNumber;
  held = [];
  try {
    await call("session.activate", { session_id: open.id, omit_messages: true });
    const since = await call<EventsSince>("session.events.since", { session_id: open.id, last_seen: open.lastSeq });
    if (number !== loadNumber) return;
    if (since.truncated) {
      await load({ runtime: open.id, stored: open.key });
      return;
    }
    const waiting = held ?? [];
    held = null;
    apply([...since.events.map((event) => ({ ...event, session_id: open.id })), ...waiting]);
    setRequests(open.id, since.open_requests);
  } catch (error) {
    if (!(error instanceof RpcError)) throw error;
    if (number === loadNumber && !(await load({ stored: open.key }))) await create();
  }
}

function show(next: Conversation): void {
  batch(() => {
    const changed = store.conversation.value?.key !== next.key;
    store.conversation.value = next;
    store.rememberOpen(next.key);
    if (changed) {
      store.editing.value = null;
      store.attachments.value = [];
      store.timeline.value = null;
      expectsTurn = false;
    }
    if (store.tree.value) observeTree();
  });
}

function setRequests(sessionId: string, open: OpenRequest[]): void {
  const others = store.requests.value.filter((request) => request.params.session_id !== sessionId);
  store.requests.value = [...others, ...open];
}

let listsDue = 0;

/** Both lists, at most twice a second however often it is asked for. */
export function refreshListsSoon(): void {
  if (listsDue) return;
  listsDue = window.setTimeout(() => {
    listsDue = 0;
    void refreshLists();
  }, 500);
}

export async function refreshLists(): Promise<void> {
  try {
    const [stored, live] = await Promise.all([call("session.list", { limit: 200 }), call("session.active_list")]);
    batch(() => {
      store.stored.value = stored.sessions;
      store.live.value = live.sessions;
    });
  } catch (error) {
    if (!(error instanceof ConnectionLost)) report(error);
  }
}

async function refreshCommands(): Promise<void> {
  try {
    const catalog = await call("commands.catalog");
    store.commands.value = catalog.pairs ?? [];
  } catch {
    store.commands.value = [];
  }
}

// --- what comes in --------------------------------------------------------------------------------------------------

function onRequest(request: OpenRequest): void {
  if (!["approval", "clarify", "sudo", "secret"].includes(request.method)) {
    connection?.decline(request.id);
    return;
  }
  if (request.params.session_id !== store.conversation.value?.id) refreshListsSoon();
  store.requests.value = [...store.requests.value.filter((known) => known.id !== request.id), request];
  mark(request, "question");
}

function mark(request: OpenRequest, type: "question" | "answer"): void {
  const open = store.timeline.value;
  if (open !== null && request.params.session_id === store.conversation.value?.id) {
    store.timeline.value = timelines.marked(open, Date.now(), type, request.method);
  }
}

function onEvent(event: GatewayEvent): void {
  switch (event.type) {
    case "tree.changed":
      onTree(event.payload);
      return;
    case "sessions.changed":
    case "session.reclaimed":
      refreshListsSoon();
      return;
    case "request.cancel":
      store.requests.value = store.requests.value.filter((request) => request.id !== event.payload.id);
      break;
    case "session.title":
    case "session.info":
      refreshListsSoon();
      break;
  }
  if (held !== null) {
    held.push(event);
    return;
  }
  arrived.push(event);
  if (!frameRequested) {
    frameRequested = true;
    // A page in the background gets no frames.
    if (document.hidden) setTimeout(applyArrived, 50);
    else requestAnimationFrame(applyArrived);
  }
}

function applyArrived(): void {
  frameRequested = false;
  if (arrived.length === 0) return;
  const events = arrived;
  arrived = [];
  if (held !== null) held.push(...events);
  else apply(events);
}

function apply(events: GatewayEvent[]): void {
  const open = store.conversation.value;
  if (open === null) return;
  let next = open;
  let times = store.timeline.value;
  const now = Date.now();
  for (const event of events) {
    if (event.session_id !== open.id) continue;
    if (event.seq !== undefined && event.seq <= next.lastSeq) continue;
    next = model.applyEvent(next, event);
    times = timelines.note(times, next.key, event, now);
    if (event.type === "message.start") {
      turnChanges += 1;
      turnStarted(next);
    }
    if (event.type === "message.complete" || event.type === "error") {
      turnChanges += 1;
      turnEnded(event);
    }
  }
  batch(() => {
    store.conversation.value = next;
    store.timeline.value = times;
  });
}

function turnStarted(next: Conversation): void {
  store.announcement.value = "Hermes is answering.";
  if (expectsTurn) {
    expectsTurn = false;
    return;
  }
  const position = next.items.length;
  const current = turnChanges;
  call<Snapshot>("session.activate", { session_id: next.id, omit_messages: true })
    .then((snapshot) => {
      const now = store.conversation.value;
      if (now === null || now.id !== next.id) return;
      if (!snapshot.inflight?.streaming || turnChanges !== current) {
        // It is over already: its prompt stands in the history, and what is in flight may be another's.
        void load({ runtime: next.id, stored: next.key }).catch(() => undefined);
        return;
      }
      const queued = snapshot.queued ? [snapshot.queued.user] : [];
      store.conversation.value = { ...model.withPromptAt(now, position, snapshot.inflight), queued };
    })
    .catch(() => undefined);
}

function turnEnded(event: GatewayEvent): void {
  const payload = event.payload ?? {};
  store.announcement.value = payload.status === "interrupted" ? "The turn was stopped." : payload.text ? `Hermes: ${payload.text}` : "The turn has ended.";
  if (payload.pending_steer) handBack(payload.pending_steer, "Your steer came too late and was not used; it is back in the box.");
  refreshListsSoon();
}

/** Text that was accepted but not used goes back to where it was written. */
export function handBack(text: string, why: string): void {
  store.draft.value = store.draft.value ? `${text}\n\n${store.draft.value}` : text;
  store.toast(why);
}

function onTree(payload: any): void {
  batch(() => {
    store.tree.value = { root: payload.tree, at: Date.now() };
    observeTree();
  });
  refreshListsSoon();
}

function observeTree(): void {
  const open = store.conversation.value;
  const picture = store.tree.value;
  if (open === null || picture === null) return;
  const base = store.timeline.value;
  // A turn that has ended may still be in the picture for a moment: that begins nothing.
  if (base !== null && base.ended_at !== null && !open.running) return;
  store.timeline.value = timelines.observe(base, open.key, picture.root, picture.at);
}
