// What happened in the last turn, as spans: who waited for what, when it was told to stop, how long its clean-up took.
// Built from pictures of the live tree, and made exact by the events that name a node. Times are of this page's clock.
import type { GatewayEvent, TreeNode } from "./wire";

export interface Span {
  node_id: string;
  parent_id: string | null;
  kind: string;
  name: string;
  depth: number;
  started_at: number;
  stopping_at: number | null;
  ended_at: number | null;
  cause: string | null;
  reason: string | null;
  outcome: string | null;
  details: Record<string, unknown> | null;
}

export interface Mark {
  at: number;
  type: string;
  text: string;
}

export interface Timeline {
  session: string;
  turn: string | null;
  started_at: number;
  ended_at: number | null;
  status: string | null;
  cause: string | null;
  reason: string | null;
  spans: Span[];
  marks: Mark[];
}

export const SHOWN_AS_WAIT: Record<string, string> = {
  model_call: "waited for the model",
  tool_call: "ran a tool",
  question: "waited for an answer",
  process: "ran a process",
  backoff: "waited before trying again",
  turn: "turn",
};

export function newTimeline(session: string, at: number): Timeline {
  return { session, turn: null, started_at: at, ended_at: null, status: null, cause: null, reason: null, spans: [], marks: [] };
}

export function sessionNode(tree: TreeNode | null, key: string): TreeNode | null {
  if (tree === null) return null;
  if (tree.kind === "session" && (tree.details?.session === key || tree.name === key)) return tree;
  for (const child of tree.children) {
    const found = sessionNode(child, key);
    if (found) return found;
  }
  return null;
}

/** One more picture of the tree. A turn that is not the known one begins a new timeline. */
export function observe(timeline: Timeline | null, session: string, tree: TreeNode, at: number): Timeline | null {
  const turn = sessionNode(tree, session)?.children.find((node) => node.kind === "turn");
  if (turn === undefined) return timeline === null ? null : ended(timeline, new Set(), at);
  const known = timeline !== null && timeline.session === session && (timeline.turn === turn.node_id || timeline.turn === null);
  const base = known && timeline.ended_at === null ? timeline : newTimeline(session, at - turn.age_s * 1000);
  const spans = new Map(base.spans.map((span) => [span.node_id, span]));
  const alive = new Set<string>();
  const visit = (node: TreeNode, parent: string | null, depth: number): void => {
    alive.add(node.node_id);
    spans.set(node.node_id, seen(spans.get(node.node_id), node, parent, depth, at));
    for (const child of node.children) visit(child, node.node_id, depth + 1);
  };
  visit(turn, null, 0);
  return ended({ ...base, turn: turn.node_id, spans: inOrder([...spans.values()]) }, alive, at);
}

function seen(span: Span | undefined, node: TreeNode, parent: string | null, depth: number, at: number): Span {
  const stopping = node.state === "stopping";
  return {
    node_id: node.node_id,
    parent_id: parent,
    kind: node.kind,
    name: node.name,
    depth,
    started_at: span?.started_at ?? at - node.age_s * 1000,
    stopping_at: span?.stopping_at ?? (stopping ? at : null),
    ended_at: null,
    cause: node.cause ?? span?.cause ?? null,
    reason: node.reason ?? span?.reason ?? null,
    outcome: span?.outcome ?? null,
    details: node.details ?? span?.details ?? null,
  };
}

function ended(timeline: Timeline, alive: Set<string>, at: number): Timeline {
  if (timeline.spans.every((span) => span.ended_at !== null || alive.has(span.node_id))) return timeline;
  const spans = timeline.spans.map((span) => (span.ended_at === null && !alive.has(span.node_id) ? { ...span, ended_at: at } : span));
  return { ...timeline, spans };
}

/** Children behind their parents, in the order in which they began. */
function inOrder(spans: Span[]): Span[] {
  const known = new Set(spans.map((span) => span.node_id));
  const below = new Map<string | null, Span[]>();
  for (const span of spans) {
    const parent = span.parent_id !== null && known.has(span.parent_id) ? span.parent_id : null;
    below.set(parent, [...(below.get(parent) ?? []), span]);
  }
  const walk = (parent: string | null): Span[] =>
    (below.get(parent) ?? []).sort((a, b) => a.started_at - b.started_at).flatMap((span) => [span, ...walk(span.node_id)]);
  return walk(null);
}

/** This page has asked a node to stop, or the whole turn: known here even if the end comes before the next picture. */
export function askedToStop(timeline: Timeline, nodeId: string | null, cause: string, reason: string, at: number): Timeline {
  const below = new Set(nodeId === null ? timeline.spans.map((span) => span.node_id) : [nodeId]);
  const spans = timeline.spans.map((span) => {
    if (span.parent_id !== null && below.has(span.parent_id)) below.add(span.node_id);
    if (span.ended_at !== null || span.stopping_at !== null || !below.has(span.node_id)) return span;
    return { ...span, stopping_at: at, cause: span.cause ?? cause, reason: span.reason ?? (reason || null) };
  });
  return { ...timeline, spans };
}

/** An event of the session: it marks the moment, and starts or ends the node that it names. */
export function note(timeline: Timeline | null, session: string, event: GatewayEvent, at: number): Timeline | null {
  const payload = event.payload ?? {};
  if (event.type === "message.start") {
    return timeline !== null && timeline.ended_at === null && timeline.session === session && timeline.status === null
      ? timeline
      : newTimeline(session, at);
  }
  if (timeline === null || timeline.session !== session) return timeline;
  switch (event.type) {
    case "tool.start":
      return marked(started(timeline, payload, at), at, event.type, `${payload.name} ${payload.context ?? ""}`.trim());
    case "tool.complete": {
      const index = timeline.spans.findLastIndex((span) => span.details?.tool_id === payload.tool_id);
      const spans = [...timeline.spans];
      const span = spans[index];
      if (span) spans[index] = { ...span, ended_at: span.ended_at ?? at, outcome: payload.error ? "failed" : "done" };
      return marked({ ...timeline, spans }, at, event.type, `${payload.name}${payload.summary ? `: ${payload.summary}` : ""}`);
    }
    case "message.complete":
      return {
        ...marked(ended(timeline, new Set(), at), at, event.type, payload.status),
        ended_at: at,
        status: payload.status,
        cause: payload.cause ?? null,
        reason: payload.reason ?? null,
      };
    case "request.cancel":
      return marked(timeline, at, event.type, `${payload.method}: ${payload.reason}`);
    default:
      return timeline;
  }
}

function started(timeline: Timeline, payload: any, at: number): Timeline {
  const id: string = payload.node_id ?? `call ${payload.tool_id}`;
  const details = { tool_id: payload.tool_id, arguments: payload.args };
  const known = timeline.spans.find((span) => span.node_id === id);
  if (known) {
    const spans = timeline.spans.map((span) => (span === known ? { ...span, details: { ...span.details, ...details } } : span));
    return { ...timeline, spans };
  }
  const span: Span = {
    node_id: id,
    parent_id: timeline.turn,
    kind: "tool_call",
    name: payload.name,
    depth: 1,
    started_at: at,
    stopping_at: null,
    ended_at: null,
    cause: null,
    reason: null,
    outcome: null,
    details,
  };
  return { ...timeline, spans: [...timeline.spans, span] };
}

export function marked(timeline: Timeline, at: number, type: string, text: string): Timeline {
  return { ...timeline, marks: [...timeline.marks, { at, type, text }] };
}

/** The timeline as a file: wall-clock times, and durations in milliseconds. */
export function exported(timeline: Timeline): string {
  const iso = (at: number | null): string | null => (at === null ? null : new Date(at).toISOString());
  const data = {
    format: "hermes.timeline/1",
    session: timeline.session,
    turn: timeline.turn,
    started_at: iso(timeline.started_at),
    ended_at: iso(timeline.ended_at),
    duration_ms: timeline.ended_at === null ? null : Math.round(timeline.ended_at - timeline.started_at),
    status: timeline.status,
    cause: timeline.cause,
    reason: timeline.reason,
    spans: timeline.spans.map(({ depth: _depth, ...span }) => ({
      ...span,
      started_at: iso(span.started_at),
      stopping_at: iso(span.stopping_at),
      ended_at: iso(span.ended_at),
      duration_ms: span.ended_at === null ? null : Math.round(span.ended_at - span.started_at),
      clean_up_ms: span.ended_at === null || span.stopping_at === null ? null : Math.round(span.ended_at - span.stopping_at),
    })),
    events: timeline.marks.map((mark) => ({ ...mark, at: iso(mark.at) })),
  };
  return JSON.stringify(data, null, 2);
}
