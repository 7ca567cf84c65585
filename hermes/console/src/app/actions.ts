// What a person can do. Each is one or a few calls; what follows from them comes back as events.
import { upload, type Attachment } from "./attachments";
import { RpcError } from "./connection";
import * as model from "./conversation";
import type { UserItem } from "./conversation";
import { answerRequest, attempt, call, connect, create, disconnect, expectTurn, handBack, load, refreshLists, report } from "./gateway";
import * as store from "./store";
import { askedToStop } from "./timeline";
import { BUSY, NOT_DISPATCHED_HERE } from "./wire";

export { answerRequest };

const REWIND_TRIES = 25;
const REWIND_PAUSE_MS = 120;

// --- coming and going -----------------------------------------------------------------------------------------------

export function logIn(key: string): void {
  store.keepKey(key);
  store.loginError.value = null;
  connect(key);
}

export function logOut(): void {
  disconnect();
  store.keepKey(null);
  store.rememberOpen(null);
  store.wasOpen.value = false;
  store.conversation.value = null;
  store.requests.value = [];
  store.tree.value = null;
  store.timeline.value = null;
  store.stored.value = [];
  store.live.value = [];
  store.draft.value = "";
}

// --- sessions -------------------------------------------------------------------------------------------------------

export async function newSession(): Promise<void> {
  store.sidebarOpen.value = false;
  await create();
  focusComposer();
}

export async function openSession(key: string): Promise<void> {
  store.sidebarOpen.value = false;
  if (store.conversation.value?.key === key) return;
  const live = store.live.value.find((session) => session.session_key === key);
  try {
    if (!(await load({ runtime: live?.id, stored: key }))) store.toast("This session could not be opened.", "error");
  } catch (error) {
    report(error);
  }
  focusComposer();
}

export async function renameSession(title: string): Promise<void> {
  const open = store.conversation.value;
  if (open === null || !title.trim()) return;
  if (await attempt("session.title", { session_id: open.id, title: title.trim() })) await refreshLists();
}

export async function deleteSession(key: string): Promise<void> {
  const live = store.live.value.find((session) => session.session_key === key);
  if (live) await attempt("session.close", { session_id: live.id });
  await attempt("session.delete", { session_id: key });
  await refreshLists();
  if (store.conversation.value?.key === key) await create();
}

// --- saying something -----------------------------------------------------------------------------------------------

/** Send what is in the box: a command, a new turn, or into the running one. Pictures and files make a turn of their own. */
export async function send(mode: "steer" | "queue" = "steer"): Promise<void> {
  const text = store.draft.value.trim();
  const given = store.attachments.value;
  if ((!text && given.length === 0) || store.conversation.value === null) return;
  store.draft.value = "";
  if (given.length === 0 && isCommand(text)) {
    await runCommand(text);
    return;
  }
  store.attachments.value = [];
  if (!store.running.value) await submit(text, given);
  else if (mode === "queue" || given.length > 0) await queue(text, given);
  else await steer(text);
}

/** What was not sent goes back to where it was written. */
function takeBack(text: string, given: Attachment[]): void {
  if (!store.draft.value) store.draft.value = text;
  if (store.attachments.value.length === 0) store.attachments.value = given;
}

function isCommand(text: string): boolean {
  const name = /^\/([\w-]+)(\s|$)/.exec(text)?.[1];
  return name !== undefined && (name in HERE || store.commands.value.some(([known]) => known === `/${name}`));
}

async function submit(written: string, given: Attachment[] = []): Promise<void> {
  const open = store.conversation.value;
  if (open === null) return;
  let text = written;
  try {
    text = await upload(open.id, written, given);
  } catch (error) {
    takeBack(written, given);
    report(error);
    return;
  }
  const before = store.conversation.value;
  if (before?.id !== open.id) return;
  const dropUndo = before.items.filter((item) => !(item.kind === "notice" && item.action));
  store.conversation.value = model.add({ ...before, items: dropUndo }, { kind: "user", text, images: pictures(given) });
  expectTurn();
  try {
    const result = await call("prompt.submit", { session_id: open.id, text, client_message_id: crypto.randomUUID?.() });
    const now = store.conversation.value;
    if (now === null || now.id !== open.id) return;
    if (result.status === "streaming") {
      store.conversation.value = model.withUserRow(now, result.user_row_id);
      return;
    }
    // Another page's turn was quicker: this one has its place behind it, or in it.
    expectTurn(false);
    await refreshOpen();
  } catch (error) {
    expectTurn(false);
    const now = store.conversation.value;
    const last = now?.items.at(-1);
    if (now && last?.kind === "user" && last.text === text) store.conversation.value = { ...now, items: now.items.slice(0, -1) };
    takeBack(written, given);
    report(error);
  }
}

function pictures(given: Attachment[]): string[] {
  return given.filter((one) => one.isImage).map((one) => one.data);
}

async function queue(written: string, given: Attachment[] = []): Promise<void> {
  const open = store.conversation.value;
  if (open === null) return;
  try {
    const text = await upload(open.id, written, given);
    const result = await call("prompt.submit", { session_id: open.id, text, queued: true });
    const now = store.conversation.value;
    if (result.status === "queued" && now?.id === open.id) store.conversation.value = { ...now, queued: [...now.queued, text || "(a picture)"] };
  } catch (error) {
    takeBack(written, given);
    report(error);
  }
}

async function steer(text: string): Promise<void> {
  const open = store.conversation.value;
  if (open === null) return;
  try {
    const result = await call("session.steer", { session_id: open.id, text });
    if (result.status === "rejected") {
      await submit(text);
      return;
    }
    // Shown by the event that tells every page of it.
  } catch (error) {
    if (!store.draft.value) store.draft.value = text;
    report(error);
  }
}

export async function stop(reason = ""): Promise<void> {
  const open = store.conversation.value;
  if (open === null || !open.running) return;
  store.conversation.value = { ...open, stopping: true };
  noteStop(null, "user_interrupt", reason);
  const result = await attempt("session.interrupt", { session_id: open.id, ...(reason.trim() ? { reason: reason.trim() } : {}) });
  const dropped: string[] = (result?.dropped_prompts ?? []).map((prompt: any) => String(prompt.text ?? ""));
  const now = store.conversation.value;
  if (now?.id === open.id) store.conversation.value = { ...now, stopping: now.running, queued: dropped.length ? [] : now.queued };
  if (dropped.length) handBack(dropped.join("\n\n"), "What was queued did not run; it is back in the box.");
}

// --- rewind ---------------------------------------------------------------------------------------------------------

/** Ask again from an earlier turn: it and everything behind it makes room for the new text. */
export async function rewind(item: UserItem, text: string): Promise<void> {
  store.editing.value = null;
  for (let tries = 0; tries < REWIND_TRIES; tries += 1) {
    const open = store.conversation.value;
    if (open === null) return;
    if (tries > 0) await new Promise((resolve) => setTimeout(resolve, REWIND_PAUSE_MS));
    if (await rewindOnce(open, item, text)) return;
    // Busy: what runs there is part of what is being replaced.
    await attempt("session.interrupt", { session_id: open.id, reason: "an earlier message was edited" });
  }
  store.toast("The session stayed busy; the edit was not sent.", "error");
}

/** False if a turn is running. */
async function rewindOnce(open: model.Conversation, item: UserItem, text: string): Promise<boolean> {
  const isFirst = open.items.find((one) => one.kind === "user" && model.isPrompt(one))?.id === item.id;
  const cut = model.add(model.rewound(open, item.id, undefined), { kind: "user", text, images: [] });
  const wasRunning = open.running;
  if (!wasRunning) store.conversation.value = cut;
  expectTurn();
  try {
    const result = await call("prompt.submit", {
      session_id: open.id,
      text,
      truncate_before_row_id: item.rowId,
      confirm_truncate: true,
      ...(isFirst ? { confirm_empty_truncate: true } : {}),
    });
    rewindAccepted(open, item, text, wasRunning, result);
    return true;
  } catch (error) {
    expectTurn(false);
    if (!wasRunning) store.conversation.value = open;
    if (error instanceof RpcError && error.code === BUSY) return false;
    report(error);
    store.draft.value = store.draft.value || text;
    await load({ runtime: open.id, stored: open.key }).catch(report);
    return true;
  }
}

function rewindAccepted(open: model.Conversation, item: UserItem, text: string, wasRunning: boolean, result: any): void {
  let now = store.conversation.value;
  if (now === null || now.id !== open.id) return;
  if (wasRunning) now = model.add(model.rewound(now, item.id, undefined), { kind: "user", text, images: [] });
  const survivors: (number | null)[] = result.survivor_user_row_ids ?? [];
  // The end of a quick turn may have told the row id before this answer came.
  const isNew = (one: model.Item): boolean =>
    one.kind === "user" && one.text === text && (one.rowId === undefined || one.rowId === result.user_row_id);
  const position = now.items.findLastIndex(isNew);
  const prompt = now.items[position];
  if (prompt?.kind !== "user") return;
  const before = model.rewound(now, prompt.id, survivors);
  const undo: model.NoticeItem = {
    kind: "notice",
    id: `undo-${prompt.id}`,
    level: "info",
    text: "You asked again from here.",
    action: "undo-rewind",
  };
  store.conversation.value = {
    ...now,
    items: [...before.items, undo, { ...prompt, rowId: result.user_row_id }, ...now.items.slice(position + 1)],
  };
}

export async function undoRewind(): Promise<void> {
  const open = store.conversation.value;
  if (open === null) return;
  if (open.running) await stop("the edit is taken back");
  if (await attempt("session.undo_rewind", { session_id: open.id })) await load({ runtime: open.id, stored: open.key }).catch(report);
}

// --- commands -------------------------------------------------------------------------------------------------------

/** Commands that are this page's own business. */
const HERE: Record<string, () => unknown> = {
  new: newSession,
  clear: newSession,
  reset: newSession,
  sessions: () => (store.sidebarOpen.value = true),
  quit: logOut,
  exit: logOut,
};

async function runCommand(text: string): Promise<void> {
  const open = store.conversation.value;
  if (open === null) return;
  const name = /^\/([\w-]+)/.exec(text)?.[1] ?? "";
  const own = HERE[name];
  if (own) {
    await own();
    return;
  }
  try {
    await takeCommandResult(text, await dispatch(text, open.id));
  } catch (error) {
    if (!store.draft.value) store.draft.value = text;
    report(error);
  }
}

async function dispatch(text: string, sessionId: string): Promise<any> {
  try {
    return await call("command.dispatch", { command: text, session_id: sessionId });
  } catch (error) {
    if (!(error instanceof RpcError) || error.code !== NOT_DISPATCHED_HERE) throw error;
    return await call("slash.exec", { command: text, session_id: sessionId });
  }
}

async function takeCommandResult(text: string, result: any): Promise<void> {
  if (result.notice) store.toast(result.notice);
  switch (result.type) {
    case "alias":
      await runCommand(result.target.startsWith("/") ? result.target : `/${result.target}`);
      return;
    case "send":
    case "skill":
      if (store.running.value) await queue(result.message);
      else await submit(result.message);
      return;
    case "prefill":
      store.draft.value = result.message;
      await refreshOpen();
      return;
    default: {
      const open = store.conversation.value;
      const output = String(result.output ?? "").trim();
      if (open) store.conversation.value = model.withNotice(open, "info", `${text}\n${output}`, { preformatted: true });
    }
  }
}

async function refreshOpen(): Promise<void> {
  const open = store.conversation.value;
  if (open) await load({ runtime: open.id, stored: open.key }).catch(report);
}

export async function setModel(model_: string, provider: string, confirmed = false): Promise<string | null> {
  const open = store.conversation.value;
  if (open === null) return null;
  const value = provider ? `${model_} --provider ${provider}` : model_;
  const result = await attempt("config.set", {
    key: "model",
    value,
    session_id: open.id,
    ...(confirmed ? { confirm_expensive_model: true } : {}),
  });
  if (result === null) return null;
  if (result.confirm_required) return String(result.confirm_message ?? "This model is expensive.");
  if (result.warning) store.toast(result.warning);
  return null;
}

function noteStop(nodeId: string | null, cause: string, reason: string): void {
  const open = store.timeline.value;
  if (open !== null && open.ended_at === null) {
    store.timeline.value = askedToStop(open, nodeId, cause, reason.trim(), Date.now());
  }
}

// --- the tree -------------------------------------------------------------------------------------------------------

export async function cancelNode(nodeId: string, reason: string): Promise<void> {
  noteStop(nodeId, "node_cancel", reason);
  const result = await attempt("scope.cancel", { node_id: nodeId, ...(reason.trim() ? { reason: reason.trim() } : {}) });
  if (result && !result.cancelled) store.toast("It was stopping already.");
}

export function focusComposer(): void {
  requestAnimationFrame(() => document.getElementById("composer")?.focus());
}
