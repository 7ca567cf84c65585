// A conversation as the page shows it: items, built from a snapshot and then from events. Pure: each function takes a
// conversation and gives the next one; items that did not change stay the same objects, so that only what changed is
// drawn again.
import type { GatewayEvent, Inflight, SessionInfo, Snapshot, Usage, WireMessage } from "./wire";

export interface UserItem {
  kind: "user";
  id: string;
  text: string;
  images: string[];
  rowId?: number;
  /** Anything but a prompt of one's own: a steer, or a turn that the server began. */
  note?: string;
}

export interface AssistantItem {
  kind: "assistant";
  id: string;
  text: string;
  reasoning: string;
  streaming: boolean;
}

export interface ToolItem {
  kind: "tool";
  id: string;
  name: string;
  context: string;
  args: Record<string, unknown>;
  state: "running" | "done" | "failed";
  output: string;
  result?: unknown;
  summary?: string;
  error?: string;
  diff?: string;
  seconds?: number;
  startedAt?: number;
  nodeId?: string;
}

export interface NoticeItem {
  kind: "notice";
  id: string;
  level: "info" | "warning" | "error";
  text: string;
  preformatted?: boolean;
  action?: "undo-rewind";
}

export type Item = UserItem | AssistantItem | ToolItem | NoticeItem;

export interface Conversation {
  id: string;
  key: string;
  title: string;
  info: SessionInfo;
  usage: Usage;
  running: boolean;
  stopping: boolean;
  items: Item[];
  queued: string[];
  status: string;
  lastSeq: number;
  nextId: number;
}

const DISPLAY_NOTES: Record<string, string> = {
  steer: "Steered",
  process_complete: "Process ended",
  async_delegation_complete: "Delegation ended",
  auto_continue: "Continued by the server",
  internal_notification: "Notification",
  model_switch: "Model",
  personality_switch: "Personality",
  skill_invocation: "Skill",
  failed_turn: "Failed turn",
};

export function fromSnapshot(snapshot: Snapshot, seq: number): Conversation {
  const conversation: Conversation = {
    id: snapshot.session_id,
    key: snapshot.session_key ?? snapshot.stored_session_id ?? "",
    title: snapshot.info.title ?? "",
    info: snapshot.info,
    usage: snapshot.info.usage ?? {},
    running: snapshot.running === true,
    stopping: false,
    items: [],
    queued: snapshot.queued ? [snapshot.queued.user] : [],
    status: "",
    lastSeq: seq,
    nextId: 1,
  };
  for (const message of snapshot.messages) {
    for (const item of [fromMessage(message, conversation.nextId), stopOf(message, conversation.nextId + 1)]) {
      if (item === null) continue;
      conversation.items.push(item);
      conversation.nextId += 1;
    }
  }
  return conversation;
}

/** The turn that runs, as far as a snapshot tells it: for a history of events that does not reach back to its start. */
export function withInflight(conversation: Conversation, inflight: Inflight): Conversation {
  const last = conversation.items.findLast((item) => item.kind === "user" && isPrompt(item));
  // A turn that has failed is still told of, but what was stored of it stands in the history.
  const isStored = !inflight.streaming && last?.kind === "user" && last.text === inflight.user;
  let next = isStored ? conversation : withPrompt(conversation, inflight);
  if (inflight.assistant && !isStored) {
    next = add(next, { kind: "assistant", text: inflight.assistant, reasoning: "", streaming: inflight.streaming });
  }
  for (const text of isStored ? [] : (inflight.corrections ?? [])) next = add(next, { kind: "user", text, images: [], note: "Steered" });
  if (inflight.error) next = withNotice(next, "error", inflight.error);
  return next;
}

/** A turn that somebody else began: its prompt goes in front of what it has said since. */
export function withPromptAt(conversation: Conversation, position: number, inflight: Inflight): Conversation {
  const before = withPrompt({ ...conversation, items: conversation.items.slice(0, position) }, inflight);
  return { ...before, items: [...before.items, ...conversation.items.slice(position)] };
}

/** The prompt of the running turn, unless it is there already. */
export function withPrompt(conversation: Conversation, inflight: Inflight): Conversation {
  if (inflight.display_kind === "hidden") return conversation;
  const images = imagesOf(inflight.content);
  const last = conversation.items.at(-1);
  if (last?.kind === "user" && last.text === inflight.user && last.images.length === images.length) return conversation;
  const note = inflight.display_kind ? (DISPLAY_NOTES[inflight.display_kind] ?? inflight.display_kind) : undefined;
  const text = inflight.display_metadata?.display_text ?? inflight.user;
  return add(conversation, { kind: "user", text, images, note });
}

export function add(conversation: Conversation, item: Omitted<Item>): Conversation {
  const id = `i${conversation.nextId}`;
  return {
    ...conversation,
    nextId: conversation.nextId + 1,
    items: [...conversation.items, { id, ...item } as Item],
  };
}

type Omitted<T> = T extends { id: string } ? Omit<T, "id"> & { id?: string } : never;

export function withNotice(
  conversation: Conversation,
  level: NoticeItem["level"],
  text: string,
  more: Partial<NoticeItem> = {},
): Conversation {
  return add(conversation, { kind: "notice", level, text, ...more });
}

function fromMessage(message: WireMessage, number: number): Item | null {
  const id = `i${number}`;
  switch (message.role) {
    case "user": {
      const kind = message.display_kind;
      if (kind === "hidden") return null;
      return {
        kind: "user",
        id,
        text: message.display_metadata?.display_text ?? textOf(message),
        images: imagesOf(message.content),
        // What a summary stands for is shown and can not be edited any more.
        rowId: !message.compacted && (kind === undefined || kind === "skill_invocation") ? message.row_id : undefined,
        note: kind === undefined ? undefined : (DISPLAY_NOTES[kind] ?? kind),
      };
    }
    case "assistant":
      return { kind: "assistant", id, text: textOf(message), reasoning: message.reasoning ?? "", streaming: false };
    case "tool":
      return {
        kind: "tool",
        id: `h${number}-${message.tool_call_id ?? ""}`,
        name: message.name ?? "tool",
        context: message.context ?? "",
        args: message.args ?? {},
        state: "done",
        output: "",
        result: message.content,
      };
    case "system":
      return { kind: "notice", id, level: "info", text: textOf(message) };
    default:
      return null;
  }
}

/** What is said of an answer that was stopped: by whom, and why. */
function stopOf(message: WireMessage, number: number): Item | null {
  const { interrupted, cause, reason } = message.display_metadata ?? {};
  if (message.role !== "assistant" || !interrupted || cause === undefined) return null;
  return { kind: "notice", id: `i${number}`, level: "warning", text: stoppedText(cause, reason) };
}

function textOf(message: WireMessage): string {
  if (typeof message.text === "string") return message.text;
  const parts: any[] = Array.isArray(message.content) ? message.content : [];
  return parts.map((part) => (part.type === "text" ? part.text : "")).join("\n");
}

function imagesOf(content: any): string[] {
  const parts: any[] = Array.isArray(content) ? content : [];
  const urls = parts.map((part) => part.image_url?.url);
  return urls.filter((url) => typeof url === "string" && url.startsWith("data:image/"));
}

// --- events ---------------------------------------------------------------------------------------------------------

export function applyEvent(before: Conversation, event: GatewayEvent): Conversation {
  if (event.seq !== undefined) {
    if (event.seq <= before.lastSeq) return before;
    before = { ...before, lastSeq: event.seq };
  }
  const payload = event.payload ?? {};
  switch (event.type) {
    case "message.start":
      return { ...before, running: true, stopping: false, status: "", queued: [] };
    case "message.delta":
      return onAnswer(before, (item) => ({ ...item, text: item.text + payload.text }));
    case "reasoning.delta":
      return onAnswer(before, (item) => ({ ...item, reasoning: item.reasoning + payload.text }));
    case "reasoning.available":
      return onReasoning(before, payload.text);
    case "thinking.delta":
      return { ...before, status: payload.text };
    case "status.update":
      return { ...before, status: payload.text === "ready" ? "" : payload.text };
    case "message.interim":
      return payload.already_streamed ? closed(before) : closed(onAnswer(before, (item) => ({ ...item, text: payload.text })));
    case "message.steer":
      return steered(before, payload);
    case "tool.generating":
      return { ...before, status: `Writing a call of ${payload.name}…` };
    case "tool.start":
      return toolStarted(before, payload);
    case "tool.progress":
      return onTool(before, payload.tool_id, (item) => ({ ...item, output: payload.preview ?? "" }));
    case "tool.complete":
      return toolEnded(before, payload);
    case "message.complete":
      return turnEnded(before, payload);
    case "error":
      return withNotice({ ...closed(before), running: false, stopping: false, status: "" }, "error", payload.message);
    case "session.info":
      return { ...before, info: payload, usage: { ...before.usage, ...payload.usage }, title: payload.title ?? before.title };
    case "session.title":
      return { ...before, title: payload.title };
    case "session.usage":
      return { ...before, usage: { ...before.usage, ...payload.usage } };
    case "notice":
      return withNotice(before, "info", payload.message);
    case "notification.show":
      return withNotice(before, payload.level === "error" ? "error" : payload.level === "warning" ? "warning" : "info", payload.text);
    case "background.complete":
      return withNotice(before, "info", `In the background: ${payload.text}`);
    case "btw.complete":
      return withNotice(before, "info", `${payload.question}\n\n${payload.text}`);
    case "subagent.start":
    case "subagent.complete":
      return subagent(before, event.type, payload);
    default:
      return before;
  }
}

function onAnswer(before: Conversation, change: (item: AssistantItem) => AssistantItem): Conversation {
  // Not always the last one: a steer may stand below it.
  const index = before.items.findLastIndex((item) => item.kind === "assistant" && item.streaming);
  const open = before.items[index];
  if (open?.kind === "assistant") {
    const items = [...before.items];
    items[index] = change(open);
    return { ...before, status: "", items };
  }
  const started = add(before, { kind: "assistant", text: "", reasoning: "", streaming: true });
  return onAnswer(started, change);
}

function onReasoning(before: Conversation, text: string): Conversation {
  const index = before.items.findLastIndex((item) => item.kind === "assistant");
  const last = before.items[index];
  if (last?.kind !== "assistant" || !last.streaming || last.reasoning || last.text === text) return before;
  const items = [...before.items];
  items[index] = { ...last, reasoning: text };
  return { ...before, items };
}

function closed(before: Conversation): Conversation {
  if (!before.items.some((item) => item.kind === "assistant" && item.streaming)) return before;
  const items = before.items.map((item) => (item.kind === "assistant" && item.streaming ? { ...item, streaming: false } : item));
  return { ...before, items };
}

function toolStarted(before: Conversation, payload: any): Conversation {
  return add(
    { ...closed(before), status: "" },
    {
      kind: "tool",
      id: `t${before.nextId}-${payload.tool_id}`,
      name: payload.name,
      context: payload.context ?? "",
      args: payload.args ?? {},
      state: "running",
      output: "",
      startedAt: Date.now(),
      nodeId: payload.node_id,
    },
  );
}

function onTool(before: Conversation, toolId: string, change: (item: ToolItem) => ToolItem): Conversation {
  const index = before.items.findLastIndex((item) => item.kind === "tool" && item.id.endsWith(`-${toolId}`));
  const item = before.items[index];
  if (item?.kind !== "tool") return before;
  const items = [...before.items];
  items[index] = change(item);
  return { ...before, items };
}

function toolEnded(before: Conversation, payload: any): Conversation {
  const known = before.items.some((item) => item.kind === "tool" && item.id.endsWith(`-${payload.tool_id}`));
  return onTool(known ? before : toolStarted(before, payload), payload.tool_id, (item) => ({
    ...item,
    state: payload.error ? "failed" : "done",
    result: payload.result,
    summary: payload.summary,
    error: payload.error,
    diff: payload.inline_diff,
    seconds: payload.duration_s,
  }));
}

function turnEnded(before: Conversation, payload: any): Conversation {
  let next: Conversation = { ...closed(before), running: false, stopping: false, status: "" };
  next = { ...next, usage: { ...next.usage, ...payload.usage }, items: next.items.map(settled) };
  if (payload.pending_steer) next = { ...next, items: next.items.filter((item) => !isUnused(item, payload.pending_steer)) };
  next = withUserRow(next, payload.persisted_turn?.user_row_id);
  if (payload.status === "error") return withNotice(next, "error", payload.error ?? payload.text ?? "The turn failed.");
  if (payload.text && !alreadyShown(next, payload.text)) {
    next = add(next, { kind: "assistant", text: payload.text, reasoning: payload.reasoning ?? "", streaming: false });
  }
  if (payload.status === "interrupted") next = withNotice(next, "warning", stoppedText(payload.cause, payload.reason));
  if (payload.warning) next = withNotice(next, "warning", payload.warning);
  return next;
}

/** Said to the running turn, here or on another page. Its delivery says nothing new of one that is shown. */
function steered(before: Conversation, payload: any): Conversation {
  const start = before.items.findLastIndex((item) => item.kind === "user" && isPrompt(item));
  const shown = before.items.slice(start + 1).some((item) => item.kind === "user" && item.text === payload.text);
  if (payload.status === "delivered" && shown) return before;
  return add(before, { kind: "user", text: payload.text, images: [], note: DISPLAY_NOTES.steer });
}

/** A steer that came too late is handed back, so it was not said. */
function isUnused(item: Item, pending: string): boolean {
  return item.kind === "user" && item.note === DISPLAY_NOTES.steer && pending.includes(item.text);
}

/** A call without an end cannot go on after its turn: what was missed is shown as ended. */
function settled(item: Item): Item {
  return item.kind === "tool" && item.state === "running" ? { ...item, state: "failed", summary: "ended with the turn" } : item;
}

function alreadyShown(conversation: Conversation, text: string): boolean {
  const last = conversation.items.findLast((item) => item.kind === "assistant");
  return last?.kind === "assistant" && last.text.trim().endsWith(text.trim());
}

const CAUSES: Record<string, string> = {
  user_interrupt: "You stopped it",
  run_stop: "The run was stopped",
  client_disconnect: "Its client went away",
  deadline: "Its time was up",
  budget: "Its budget was used up",
  parent: "What it belonged to was stopped",
  node_cancel: "Stopped in the tree",
  session_closed: "The session was closed",
  lease_lost: "Another process took the session over",
  shutdown: "The server was stopped",
};

export function causeText(cause: string | undefined): string {
  return cause === undefined ? "" : (CAUSES[cause] ?? cause);
}

export function stoppedText(cause: string | undefined, reason: string | null | undefined): string {
  const what = causeText(cause) || "Stopped";
  return reason ? `${what}: ${reason}` : `${what}.`;
}

function subagent(before: Conversation, type: string, payload: any): Conversation {
  if (type === "subagent.start") return { ...before, status: `Delegated: ${payload.goal}` };
  return { ...before, status: "" };
}

// --- prompts --------------------------------------------------------------------------------------------------------

export function withUserRow(conversation: Conversation, rowId: number | undefined): Conversation {
  if (rowId === undefined || conversation.items.some((item) => item.kind === "user" && item.rowId === rowId)) return conversation;
  const index = conversation.items.findLastIndex((item) => item.kind === "user" && item.note === undefined);
  const item = conversation.items[index];
  if (item?.kind !== "user" || item.rowId !== undefined) return conversation;
  const items = [...conversation.items];
  items[index] = { ...item, rowId };
  return { ...conversation, items };
}

/** A turn that counts as a place to cut at: a prompt of a person, typed or through a skill. */
export function isPrompt(item: UserItem): boolean {
  return item.note === undefined || item.note === DISPLAY_NOTES.skill_invocation;
}

/** What is left before a turn that is asked again; the survivors take the row ids that the server names. */
export function rewound(conversation: Conversation, itemId: string, survivors: (number | null)[] | undefined): Conversation {
  const index = conversation.items.findIndex((item) => item.id === itemId);
  if (index < 0) return conversation;
  let ordinal = 0;
  const items = conversation.items.slice(0, index).map((item) => {
    if (item.kind !== "user" || survivors === undefined || !isPrompt(item)) return item;
    const rowId = survivors[ordinal++] ?? undefined;
    return rowId === item.rowId ? item : { ...item, rowId };
  });
  return { ...conversation, items, status: "" };
}
