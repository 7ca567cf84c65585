// What goes over the wire, as far as the console reads it.

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
export type Params = Record<string, unknown>;

export interface GatewayEvent {
  type: string;
  session_id?: string;
  payload?: any;
  seq?: number;
}

export interface OpenRequest {
  id: string;
  method: string;
  params: any;
}

export interface TreeNode {
  node_id: string;
  kind: string;
  name: string;
  state: string;
  age_s: number;
  cause?: string;
  reason?: string | null;
  deadline_in_s?: number;
  details?: Record<string, unknown>;
  pids?: number[];
  children: TreeNode[];
}

export interface StoredSession {
  id: string;
  title: string | null;
  preview: string;
  started_at: number;
  message_count: number;
  source: string;
}

export interface LiveSession {
  id: string;
  session_key: string;
  status: string;
  model: string;
  title: string;
  preview: string;
  last_active: number;
}

export interface WireMessage {
  role: "user" | "assistant" | "tool" | "system";
  text?: string;
  content?: any;
  reasoning?: string;
  row_id?: number;
  compacted?: boolean;
  timestamp?: number;
  display_kind?: string;
  display_metadata?: { display_text?: string; interrupted?: boolean; cause?: string; reason?: string | null };
  name?: string;
  context?: string;
  args?: Record<string, unknown>;
  tool_call_id?: string;
}

export interface Usage {
  input?: number;
  output?: number;
  total?: number;
  calls?: number;
  context_used?: number;
  context_max?: number;
  context_percent?: number;
  cost_usd?: number;
}

export interface SessionInfo {
  model?: string;
  provider?: string;
  cwd?: string;
  branch?: string | null;
  title?: string;
  running?: boolean;
  stored_session_id?: string;
  approval_mode?: string;
  usage?: Usage;
  version?: string;
  credential_warning?: string;
}

export interface Snapshot {
  session_id: string;
  session_key?: string;
  stored_session_id?: string;
  messages: WireMessage[];
  info: SessionInfo;
  running?: boolean;
  inflight?: Inflight | null;
  queued?: { user: string };
  open_requests?: OpenRequest[];
}

export interface Inflight {
  user: string;
  /** In parts, when it came with pictures. */
  content?: any;
  assistant: string;
  streaming: boolean;
  corrections?: string[];
  display_kind?: string;
  display_metadata?: { display_text?: string };
  error?: string;
}

export interface EventsSince {
  events: GatewayEvent[];
  latest_seq: number;
  truncated: boolean;
  epoch: string;
  open_requests: OpenRequest[];
}

export const METHOD_NOT_FOUND = -32601;
export const NO_SUCH_SESSION = 4001;
export const BUSY = 4009;
export const NOT_DISPATCHED_HERE = 4018;
