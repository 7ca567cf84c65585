// The Hermes gateway. Made by `hermes schema typescript`; do not edit.

export type Json = unknown;

export interface AgentProcessRow {
  session_id: string;
  command: string;
  status: string;
  uptime: number;
}

export interface AgentTerminalOutput {
  process_id: string;
  chunk: string;
}

export interface AgentsListResult {
  processes: AgentProcessRow[];
}

export interface ApprovalAnswer {
  choice: "once" | "session" | "always" | "deny";
  all?: boolean | null;
}

export interface ApprovalAsked {
  session_id: string;
  request_id: string;
  command?: string | null;
  description?: string | null;
  choices?: ("once" | "session" | "always" | "deny")[] | null;
  allow_permanent?: boolean | null;
  allow_session?: boolean | null;
  smart_denied?: boolean | null;
  tool_name?: string | null;
  pattern_key?: string | null;
  pattern_keys?: string[] | null;
  [more: string]: unknown;
}

export interface ApprovalCancelled {
  session_id: string;
  stored_session_id: string;
  reason: string;
  cancelled_count: number;
  request_ids: string[];
}

export interface ApprovalPendingResult {
  approvals: PendingApproval[];
}

export interface ApprovalReceivedParams {
  profile?: string | null;
  session_id: string;
  request_id: string;
}

export interface ApprovalReceivedResult {
  acknowledged: boolean;
}

export interface ApprovalRequest {
  request_id: string | null;
  command: string;
  description: string;
  pattern_key: string;
  pattern_keys: string[];
  allow_permanent: boolean;
  choices: string[];
  smart_denied?: boolean | null;
}

export interface ApprovalRespondParams {
  profile?: string | null;
  request_key?: string | null;
  idempotency_key?: string | null;
  session_id?: string | null;
  choice?: Json;
  all?: boolean;
  request_id?: string | null;
}

export interface ApprovalRespondResult {
  resolved: number;
}

/** What every request carries. */
export interface Asked {
  session_id: string;
  tool_call_id?: string | null;
}

export interface BrowserCancel {
  command_id: string;
  tool_call_id?: string | null;
}

export interface BrowserCommand {
  command_id: string;
  action: string;
  arguments: Record<string, Json>;
  controller_id?: string | null;
  browser_profile_id?: string | null;
  tool_call_id?: string | null;
}

export interface BrowserDetachResult {
  detached: boolean;
}

export interface BrowserHeartbeatResult {
  ok: boolean;
}

export interface BrowserRegisterParams {
  profile?: string | null;
  session_id: string;
  controller_id: string;
  browser_profile_id: string;
  capabilities?: Json[];
  protocol_version?: Json;
}

export interface BrowserRegisterResult {
  scope: Record<string, Json>;
}

export interface BrowserResultParams {
  profile?: string | null;
  session_id: string;
  command_id: string;
  ok?: Json;
  result?: Json;
  error?: Json;
}

export interface BrowserResultResult {
  accepted: boolean;
}

/** Without ``answers`` the whole batch is cancelled; null skips one question. */
export interface ClarifyAnswer {
  answers?: Record<string, string | string[] | null> | null;
}

export interface ClarifyAsked {
  session_id: string;
  tool_call_id?: string | null;
  questions: ClarifyQuestion[];
  answers?: Record<string, string | null> | null;
}

export interface ClarifyLockParams {
  profile?: string | null;
  request_key?: string | null;
  idempotency_key?: string | null;
  request_id: string;
  question_id: string;
  answer?: Json;
}

export interface ClarifyLockResult {
  status: "ok" | "expired";
  remaining?: string[] | null;
}

export interface ClarifyQuestion {
  qid: string;
  question: string;
  choices?: string[] | null;
  multi_select?: boolean | null;
}

export interface ClarifyRequest {
  request_id: string;
  question: string;
  choices: string[] | null;
}

export interface ClarifyRespondParams {
  profile?: string | null;
  request_key?: string | null;
  idempotency_key?: string | null;
  session_id?: string | null;
  request_id: string;
  answer?: string;
}

export interface CliExecParams {
  profile?: string | null;
  request_key?: string | null;
  idempotency_key?: string | null;
  argv: string[];
  timeout?: number | null;
}

export interface CliExecResult {
  blocked: boolean;
  code: number;
  output: string;
  hint?: string | null;
}

export interface ClientCapabilitiesParams {
  profile?: string | null;
  server_requests?: boolean | null;
  legacy_requests?: boolean | null;
  tool_progress?: boolean | null;
  steers?: boolean | null;
  turn_ids?: boolean | null;
}

export interface ClientCapabilitiesResult {
  server_requests: string[];
  declines_not_shown: boolean;
}

export interface CommandCatalogMeta {
  argument_mode: "options" | "text" | "mixed";
}

/** ``pairs``: name and description. */
export interface CommandCategory {
  name: string;
  pairs: Json[][];
}

export interface CommandDispatchParams {
  profile?: string | null;
  request_key?: string | null;
  idempotency_key?: string | null;
  name?: string | null;
  arg?: string | null;
  command?: string | null;
  session_id?: string | null;
}

export interface CommandDispatchResult {
  type: "exec" | "alias" | "plugin" | "send" | "skill" | "prefill";
  output?: string | null;
  target?: string | null;
  message?: string | null;
  notice?: string | null;
  display?: string | null;
  name?: string | null;
  status?: string | null;
  warning?: string | null;
  state_changed?: string[] | null;
}

export interface CommandResolveParams {
  profile?: string | null;
  name?: string;
}

export interface CommandResolveResult {
  canonical: string;
  description: string;
  category: string;
}

export interface CommandsCatalogResult {
  pairs: Json[][];
  sub: Record<string, string[]>;
  canon: Record<string, string>;
  commands: Record<string, CommandCatalogMeta>;
  categories: CommandCategory[];
  skills: Record<string, SkillCatalogEntry>;
  skill_count: number;
  warning: string;
}

export interface CompletePathParams {
  profile?: string | null;
  word?: string;
  cwd?: string | null;
  session_id?: string | null;
}

export interface CompleteResult {
  items: CompletionItem[];
  replace_from?: number | null;
}

export interface CompleteSlashParams {
  profile?: string | null;
  text?: string;
  session_id?: string | null;
}

export interface CompletionItem {
  text: string;
  display: string;
  meta: string;
  kind: string;
}

export interface CompressionSummary {
  noop: boolean;
  aborted: boolean;
  refused_would_grow: boolean;
  fallback_used: boolean;
  headline: string;
  token_line: string;
  note?: string | null;
}

export interface ConfigGetParams {
  profile?: string | null;
  key: string;
  session_id?: string | null;
  cwd?: string | null;
}

export interface ConfigGetResult {
  value?: string | null;
  display?: string | null;
  tool_progress?: string | null;
  model?: string | null;
  provider?: string | null;
  providers?: ConfigProviderRef[] | null;
  home?: string | null;
  cwd?: string | null;
  branch?: string | null;
  config?: Record<string, Json> | null;
  prompt?: string | null;
  mtime?: number | null;
  mcp_rev?: string | null;
}

export interface ConfigProviderRef {
  id: string;
  label: string;
  aliases: string[];
  authenticated: boolean;
}

/** ``rows``: label and value. */
export interface ConfigSection {
  title: string;
  rows: Json[][];
}

export interface ConfigSetParams {
  profile?: string | null;
  request_key?: string | null;
  idempotency_key?: string | null;
  key: string;
  value?: Json;
  session_id?: string | null;
  scope?: string | null;
  confirm_expensive_model?: boolean;
}

export interface ConfigSetResult {
  key: string;
  value?: string | boolean | null;
  warning?: string | null;
  confirm_required?: boolean | null;
  confirm_message?: string | null;
  scope?: string | null;
  deferred?: boolean | null;
  tool_progress?: string | null;
  cwd?: string | null;
  branch?: string | null;
  history_reset?: boolean | null;
  info?: SessionLiveInfo | null;
}

export interface ConfigShowResult {
  sections: ConfigSection[];
}

export interface ConnectionAnswer {
  settled_by: "all_resolved" | "continue" | "deadline" | "interrupt";
  targets?: ConnectionTargetAnswer[] | null;
}

export interface ConnectionAsked {
  session_id: string;
  tool_call_id?: string | null;
  op_id: string;
  timeout_seconds: number;
  targets: ConnectionTargetAsked[];
  reason?: string | null;
}

/** ``env`` holds the values of ``required_env``; others are ignored. */
export interface ConnectionTargetAnswer {
  name: string;
  status: "approved" | "skipped";
  detail?: string | null;
  env?: Record<string, string> | null;
}

export interface ConnectionTargetAsked {
  name: string;
  kind: string;
  action: string;
  state: string;
  connect_url?: string | null;
  required_env?: string[] | null;
}

export interface ContextCategory {
  id: string;
  label: string;
  tokens: number;
  color: string;
}

export interface DelegationPauseParams {
  profile?: string | null;
  request_key?: string | null;
  idempotency_key?: string | null;
  paused?: boolean;
}

export interface DelegationPauseResult {
  paused: boolean;
}

export interface DelegationStatusResult {
  active: SubagentRow[];
  paused: boolean;
  max_spawn_depth: number;
  max_concurrent_children: number;
}

export interface DroppedPrompt {
  text: string;
  client_message_id?: string | null;
}

export interface EmptyKeyedParams {
  profile?: string | null;
  request_key?: string | null;
  idempotency_key?: string | null;
}

export interface EmptyParams {
  profile?: string | null;
}

export interface EmptyPayload {
}

export interface ErrorPayload {
  message: string;
  code?: string | null;
}

export interface ErrorSurface {
  layer: string;
  code: string;
  retryable: boolean;
  provider?: string | null;
  model?: string | null;
  resets_at?: Json;
}

export interface FailedDelegation {
  delegation_id: string;
  task_index: number;
  status: string;
  goal: string;
  error: string | null;
  dispatched_at: number | null;
  completed_at: number | null;
}

export interface FileAttachParams {
  profile?: string | null;
  request_key?: string | null;
  idempotency_key?: string | null;
  session_id: string;
  path?: string | null;
  data_url?: string | null;
  name?: string | null;
}

export interface FileAttachResult {
  attached: boolean;
  name: string;
  path: string;
  ref_path: string;
  ref_text: string;
  uploaded: boolean;
}

export interface GatewayCapabilitiesResult {
  per_session_exclusive_submit: boolean;
}

export interface GatewayPingResult {
  ok: boolean;
}

export interface GatewayReady {
  skin: Record<string, Json>;
  change_events: boolean;
  replay_epoch: string;
  heartbeat?: boolean | null;
}

export interface ImageAttachBytesParams {
  profile?: string | null;
  request_key?: string | null;
  idempotency_key?: string | null;
  session_id: string;
  content_base64?: string | null;
  data?: string | null;
  filename?: string | null;
  ext?: string | null;
}

export interface ImageAttachResult {
  attached: boolean;
  path?: string | null;
  count?: number | null;
  remainder?: string | null;
  text?: string | null;
  name?: string | null;
  width?: number | null;
  height?: number | null;
  token_estimate?: number | null;
  bytes?: number | null;
  message?: string | null;
}

export interface ImageDetachResult {
  detached: boolean;
  count: number;
}

/** The running turn so far, or the failed one until the next begins (§4.9). */
export interface InflightTurn {
  user: string;
  content?: Record<string, Json>[] | null;
  assistant: string;
  streaming: boolean;
  corrections?: string[] | null;
  correction_offsets?: number[] | null;
  error?: string | null;
  status?: string | null;
  recoverable?: boolean | null;
  error_surface?: Record<string, Json> | null;
  display_kind?: string | null;
  display_metadata?: Record<string, Json> | null;
  [more: string]: unknown;
}

export interface InputDetectDropParams {
  profile?: string | null;
  request_key?: string | null;
  idempotency_key?: string | null;
  session_id: string;
  text?: string;
}

export interface InputDetectDropResult {
  matched: boolean;
  is_image?: boolean | null;
  path?: string | null;
  count?: number | null;
  text?: string | null;
  name?: string | null;
  width?: number | null;
  height?: number | null;
  token_estimate?: number | null;
}

export interface InsightsGetParams {
  profile?: string | null;
  days?: number;
}

export interface InsightsGetResult {
  days: number;
  sessions: number;
  messages: number;
}

export interface KeyedSessionParams {
  profile?: string | null;
  request_key?: string | null;
  idempotency_key?: string | null;
  session_id: string;
}

export interface LinesAsked {
  session_id: string;
  tool_call_id?: string | null;
  start?: number | null;
  count?: number | null;
}

export interface LiveInfoResult {
  model: string;
  tools: Record<string, string[]>;
  skills: Record<string, string[]>;
  cwd: string;
  branch?: string | null;
  project?: Record<string, Json> | null;
  desktop_contract: number;
  profile_name: string;
  provider?: string | null;
  reasoning_effort?: string | null;
  service_tier?: string | null;
  fast?: boolean | null;
  yolo?: boolean | null;
  approval_mode?: string | null;
  terminal_backend?: string | null;
  personality?: string | null;
  running?: boolean | null;
  turn_started_at?: number | null;
  title?: string | null;
  stored_session_id?: string | null;
  version?: string | null;
  usage?: Usage | null;
  mcp_servers?: McpServerStatus[] | null;
  credential_warning?: string | null;
  lazy?: boolean | null;
  [more: string]: unknown;
}

export interface LlmOneshotParams {
  profile?: string | null;
  template?: string | null;
  instructions?: string | null;
  input?: string | null;
  variables?: Record<string, Json> | null;
  task?: string | null;
  temperature?: number | null;
  max_tokens?: number | null;
  session_id?: string | null;
}

export interface LlmOneshotResult {
  text: string;
}

export interface MachineFactsResult {
  machine: MachineInfo;
  machine_kind: string;
  has_nvidia_gpu: boolean;
  locale?: string | null;
}

export interface MachineInfo {
  os_family: string;
  os_release: string;
  native_arch: string;
  cpu_model?: string | null;
  ram_gb?: number | null;
  vendor?: string | null;
  wsl: boolean;
  container: boolean;
}

/** ``notice``: which of its tools cannot be used, and why. */
export interface McpServerRuntimeRow {
  name: string;
  transport: string;
  tools: number;
  connected: boolean;
  disabled: boolean;
  status: string;
  source: "config" | "plugin";
  notice?: string | null;
}

export interface McpServerStatus {
  name: string;
  status: string;
  tool_count?: number | null;
  error?: string | null;
  notice?: string | null;
  [more: string]: unknown;
}

/** ``tools``: the names that are let in, null for all; ``env``: names only. */
export interface McpServerSummary {
  name: string;
  transport: string;
  command?: string | null;
  url?: string | null;
  args: string[];
  env: string[];
  enabled: boolean;
  tools: string[] | null;
  source: "config" | "plugin";
}

export interface McpServersListResult {
  servers: McpServerSummary[];
}

export interface McpServersStatusResult {
  servers: McpServerRuntimeRow[];
  checked_at: number;
}

export interface McpServersTestParams {
  profile?: string | null;
  name: string;
}

export interface McpServersTestResult {
  ok: boolean;
  tools: ToolRow[];
  oauth_needed: boolean;
  error?: string | null;
  notice?: string | null;
}

export interface MessageComplete {
  text: string | null;
  status: "complete" | "error" | "interrupted";
  usage: Usage;
  turn_exit_reason: string;
  persisted_turn: PersistedTurn;
  cause?: string | null;
  reason?: string | null;
  pending_steer?: string | null;
  partial?: boolean | null;
  reasoning?: string | null;
  warning?: string | null;
  response_previewed?: boolean | null;
  error?: string | null;
  recoverable?: boolean | null;
  failure_reason?: string | null;
  error_surface?: ErrorSurface | null;
}

export interface MessageInterim {
  text: string;
  already_streamed: boolean;
}

export interface MessageSteer {
  text: string;
  status: "accepted" | "delivered" | "redirected";
  tool_id?: string | null;
}

export interface ModelCapabilities {
  fast: boolean;
  reasoning: boolean;
  can_disable_reasoning?: boolean | null;
}

export interface ModelDisconnectParams {
  profile?: string | null;
  request_key?: string | null;
  idempotency_key?: string | null;
  slug: string;
  session_id?: string | null;
}

export interface ModelDisconnectResult {
  slug: string;
  name: string;
  disconnected: boolean;
}

/** One provider of the picker, with its models. */
export interface ModelOptionProvider {
  slug: string;
  name: string;
  models?: string[] | null;
  total_models?: number | null;
  is_current?: boolean | null;
  is_user_defined?: boolean | null;
  source?: string | null;
  authenticated?: boolean | null;
  aliases?: string[] | null;
  auth_type?: string | null;
  api_url?: string | null;
  native_catalog_empty?: boolean | null;
  key_env?: string | null;
  warning?: string | null;
  featured_models?: string[] | null;
  capabilities?: Record<string, ModelCapabilities> | null;
  pricing?: Record<string, ModelPricing> | null;
}

export interface ModelOptionsParams {
  profile?: string | null;
  session_id?: string | null;
  explicit_only?: boolean;
  include_unconfigured?: boolean;
  refresh?: boolean;
}

export interface ModelOptionsResult {
  providers: ModelOptionProvider[];
  model: string | null;
  provider: string | null;
  [more: string]: unknown;
}

export interface ModelPricing {
  input: string;
  output: string;
  cache?: string | null;
  free: boolean;
}

export interface ModelSaveKeyParams {
  profile?: string | null;
  request_key?: string | null;
  idempotency_key?: string | null;
  slug: string;
  api_key: string;
  session_id?: string | null;
}

export interface ModelSaveKeyResult {
  provider: ModelOptionProvider;
}

export interface NotificationClear {
  key: string;
}

export interface NotificationShow {
  text: string;
  level: string;
  kind: string;
  key?: string | null;
  ttl_ms?: number | null;
}

export interface OlderRequest {
  request_id: string;
}

export interface OpenRequestEntry {
  id: string;
  method: string;
  params: Record<string, Json>;
  interrupted?: boolean | null;
}

/** May carry more than what is declared. */
export interface OpenShape {
  [more: string]: unknown;
}

export interface OptionalSessionParams {
  profile?: string | null;
  session_id?: string | null;
}

export interface PasteCollapseParams {
  profile?: string | null;
  request_key?: string | null;
  idempotency_key?: string | null;
  text: string;
}

export interface PasteCollapseResult {
  placeholder: string;
  path: string;
  lines: number;
}

export interface PathParams {
  profile?: string | null;
  request_key?: string | null;
  idempotency_key?: string | null;
  session_id: string;
  path: string;
}

/** The oldest open approval, as a host shows it. */
export interface PendingApproval {
  request_id?: string | null;
  command?: string | null;
  description?: string | null;
  choices?: string[] | null;
  [more: string]: unknown;
}

export interface PersistedTurn {
  row_ids: number[];
  complete: boolean;
  user_row_id?: number | null;
  final_assistant_row_id?: number | null;
}

export interface PingResult {
  pong: boolean;
}

export interface PluginRow {
  name: string;
  version: string;
  enabled: boolean;
}

export interface PluginsListResult {
  plugins: PluginRow[];
}

export interface PreviewActAsked {
  session_id: string;
  tool_call_id?: string | null;
  action: string;
  ref?: string | null;
  selector?: string | null;
  text?: string | null;
  key?: string | null;
  submit?: boolean | null;
  to?: string | null;
  amount?: number | null;
  full?: boolean | null;
  max?: number | null;
  allow_shortcut?: boolean | null;
}

export interface ProcessEntry {
  session_id: string;
  command: string;
  cwd: string;
  pid: number | null;
  started_at: string;
  uptime_seconds: number;
  status: string;
  output_preview: string;
  session_scoped: boolean;
  notify_on_complete: boolean;
  exit_code: number | null;
  exited_at: number | null;
}

export interface ProcessKillParams {
  profile?: string | null;
  request_key?: string | null;
  idempotency_key?: string | null;
  session_id: string;
  process_id: string;
}

export interface ProcessKillResult {
  status: "killed" | "already_exited" | "not_found" | "error";
  [more: string]: unknown;
}

export interface ProcessListResult {
  processes: ProcessEntry[];
}

export interface ProcessStopParams {
  profile?: string | null;
  request_key?: string | null;
  idempotency_key?: string | null;
  session_id?: string | null;
}

export interface ProcessStopResult {
  killed: number;
}

export interface ProfileRow {
  name: string;
  path: string;
  is_default: boolean;
  model: string;
  provider: string;
}

export interface ProfilesListParams {
  profile?: string | null;
  include_sessions?: boolean;
}

export interface ProfilesListResult {
  profiles: ProfileRow[];
}

export interface ProjectFacts {
  root: string;
  manifests: string[];
  packageManagers: string[];
  verifyCommands: string[];
  contextFiles: string[];
}

export interface ProjectFactsParams {
  profile?: string | null;
  cwd?: string | null;
}

export interface ProjectFactsResult {
  facts: ProjectFacts | null;
}

export interface PromptBackgroundParams {
  profile?: string | null;
  request_key?: string | null;
  idempotency_key?: string | null;
  session_id: string;
  text: string;
}

export interface PromptBackgroundResult {
  task_id: string;
}

export interface PromptSubmitParams {
  profile?: string | null;
  request_key?: string | null;
  idempotency_key?: string | null;
  session_id: string;
  text?: Json;
  display_kind?: string | null;
  interrupted?: boolean | null;
  queued?: boolean;
  surface?: string | null;
  voice_context?: string | null;
  voice_turn?: boolean | null;
  title_preview?: string | null;
  client_message_id?: string | null;
  truncate_before_user_ordinal?: Json;
  truncate_before_row_id?: Json;
  truncate_before_message_id?: Json;
  confirm_truncate?: Json;
  confirm_empty_truncate?: Json;
  confirm_deep_truncate?: Json;
  rebind_survivor_row_ids?: number[] | null;
  deadline_s?: number | null;
  max_iterations?: number | null;
  max_tokens_total?: number | null;
  max_cost_usd?: number | null;
}

export interface PromptSubmitResult {
  status: "streaming" | "queued" | "steered" | "redirected";
  queue_position?: number | null;
  user_row_id?: number | null;
  survivor_user_row_ids?: (number | null)[] | null;
  survivor_row_id_map?: Record<string, number | null> | null;
}

export interface QueuedPrompt {
  user: string;
}

export interface ReloadEnvResult {
  updated: number;
}

export interface ReloadMcpParams {
  profile?: string | null;
  request_key?: string | null;
  idempotency_key?: string | null;
  session_id?: string | null;
  confirm?: boolean | null;
  always?: boolean;
  rev?: string | null;
}

export interface ReloadMcpResult {
  status: "confirm_required" | "reloaded";
  message?: string | null;
  loaded_rev?: string | null;
  coalesced?: boolean | null;
}

/** The ``params`` of an event frame, as it was sent. */
export interface ReplayedEvent {
  type: string;
  session_id: string;
  payload?: Json;
  seq: number;
  turn_id?: string | null;
}

export interface RequestAnswerParams {
  profile?: string | null;
  request_key?: string | null;
  idempotency_key?: string | null;
  id: string;
  result: Record<string, Json>;
}

export interface RequestCancel {
  id: string;
  method: string;
  reason: "timeout" | "interrupted" | "resolved" | "session_closed" | "shutdown";
}

export interface ResumeProgress {
  phase: string;
  status: "loading" | "complete" | "failed";
  message_count?: number | null;
  message?: string | null;
}

export interface RollbackCheckpoint {
  hash: string;
  timestamp: string;
  message: string;
}

export interface RollbackDiffParams {
  profile?: string | null;
  session_id: string;
  hash: string;
}

export interface RollbackDiffResult {
  stat: string;
  diff: string;
  rendered: string;
}

export interface RollbackListResult {
  enabled: boolean;
  checkpoints: RollbackCheckpoint[];
}

export interface RollbackRestoreParams {
  profile?: string | null;
  request_key?: string | null;
  idempotency_key?: string | null;
  session_id: string;
  hash: string;
  file_path?: string | null;
}

export interface RollbackRestoreResult {
  success: boolean;
  [more: string]: unknown;
}

export interface ScopeCancelParams {
  profile?: string | null;
  request_key?: string | null;
  idempotency_key?: string | null;
  node_id: string;
  reason?: string | null;
}

export interface ScopeCancelResult {
  cancelled: boolean;
  node_id: string;
}

export interface SecretAsked {
  session_id: string;
  tool_call_id?: string | null;
  env_var: string;
  prompt: string;
  metadata?: Record<string, Json> | null;
}

export interface SecretRequest {
  request_id: string;
  env_var: string;
  prompt: string;
  metadata?: Json;
}

export interface SecretRespondParams {
  profile?: string | null;
  request_key?: string | null;
  idempotency_key?: string | null;
  session_id?: string | null;
  request_id: string;
  value?: string;
}

export interface SeedMessage {
  profile?: string | null;
  role: "user" | "assistant" | "system";
  content?: string | null;
  text?: string | null;
  display_kind?: string | null;
}

export interface SessionActivateParams {
  profile?: string | null;
  session_id: string;
  cols?: number | null;
  omit_messages?: boolean;
}

export interface SessionActiveItem {
  id: string;
  session_key: string;
  current: boolean;
  status: "starting" | "idle" | "working" | "waiting" | "streaming" | "resuming";
  model: string;
  title: string;
  preview: string;
  message_count: number;
  started_at: number;
  last_active: number;
}

export interface SessionActiveListParams {
  profile?: string | null;
  current_session_id?: string | null;
}

export interface SessionActiveListResult {
  sessions: SessionActiveItem[];
}

export interface SessionArchiveParams {
  profile?: string | null;
  request_key?: string | null;
  idempotency_key?: string | null;
  session_id?: string | null;
  session_key?: string | null;
  archived?: boolean;
}

export interface SessionArchiveResult {
  archived: boolean;
  session_key: string;
}

export interface SessionBranchParams {
  profile?: string | null;
  request_key?: string | null;
  idempotency_key?: string | null;
  session_id: string;
  name?: string | null;
  count?: number | null;
}

export interface SessionBranchResult {
  session_id: string;
  stored_session_id: string;
  title: string;
  parent: string;
  message_count: number;
  info: SessionLiveInfo;
  messages?: TranscriptMessage[] | null;
  messages_omitted?: boolean | null;
}

export interface SessionBranchStoredParams {
  profile?: string | null;
  request_key?: string | null;
  idempotency_key?: string | null;
  parent_session_id: string;
  cols?: number | null;
  source?: string | null;
  cwd?: string | null;
}

export interface SessionBranchWholeParams {
  profile?: string | null;
  request_key?: string | null;
  idempotency_key?: string | null;
  session_id: string;
  name?: string | null;
}

export interface SessionCloseParams {
  profile?: string | null;
  request_key?: string | null;
  idempotency_key?: string | null;
  session_id: string;
  reason?: string | null;
}

export interface SessionCloseResult {
  closed: boolean;
  messages: string[];
}

export interface SessionCompressParams {
  profile?: string | null;
  request_key?: string | null;
  idempotency_key?: string | null;
  session_id: string;
  focus_topic?: string | null;
}

export interface SessionCompressResult {
  status?: string | null;
  removed?: number | null;
  before_messages?: number | null;
  after_messages?: number | null;
  before_tokens?: number | null;
  after_tokens?: number | null;
  summary?: CompressionSummary | null;
  usage?: Usage | null;
  info?: SessionLiveInfo | null;
  messages?: TranscriptMessage[] | null;
  compressed?: boolean | null;
  lock_held?: boolean | null;
  message?: string | null;
  [more: string]: unknown;
}

export interface SessionContextBreakdownResult {
  categories: ContextCategory[];
  context_max: number;
  context_percent: number;
  context_used: number;
  estimated_total: number;
  context_estimated: boolean;
  context_source: string;
  model: string;
}

export interface SessionCreateParams {
  profile?: string | null;
  request_key?: string | null;
  idempotency_key?: string | null;
  cols?: number | null;
  source?: string;
  cwd?: string | null;
  cwd_explicit?: boolean;
  messages?: SeedMessage[] | null;
  parent_session_id?: string | null;
  title?: string | null;
  model?: string | null;
  provider?: string | null;
  reasoning_effort?: string | null;
  fast?: boolean | null;
  service_tier?: string | null;
  close_on_disconnect?: boolean;
  hidden?: boolean;
  follow_profile_config?: boolean;
  room_plumbing?: boolean | null;
}

export interface SessionCreateResult {
  session_id: string;
  stored_session_id: string;
  message_count: number;
  messages: TranscriptMessage[];
  info: SessionLiveInfo;
}

export interface SessionCwdSetParams {
  profile?: string | null;
  request_key?: string | null;
  idempotency_key?: string | null;
  session_id: string;
  cwd: string;
}

export interface SessionDeleteResult {
  deleted: string;
}

export interface SessionEventsSinceParams {
  profile?: string | null;
  session_id: string;
  last_seen?: number;
}

export interface SessionEventsSinceResult {
  events: ReplayedEvent[];
  latest_seq: number;
  truncated: boolean;
  count: number;
  epoch: string;
  open_requests: OpenRequestEntry[];
}

export interface SessionEventsStatsResult {
  sessions: number;
  events: number;
  bytes: number;
  max_per_session: number;
  max_bytes_per_session: number;
  max_bytes_process: number;
}

export interface SessionHistoryResult {
  count: number;
  messages: TranscriptMessage[];
}

export interface SessionInterruptParams {
  profile?: string | null;
  request_key?: string | null;
  idempotency_key?: string | null;
  session_id: string;
  expected_hosted_task_id?: string | null;
  reason?: StopReason | string | null;
  clear_queue?: boolean;
}

export interface SessionInterruptResult {
  status: "interrupted" | "not_interrupted" | "idle";
  settled?: boolean | null;
  stopped?: StoppedNode[] | null;
  dropped_prompts?: DroppedPrompt[] | null;
  pending_steer?: string | null;
  interrupted?: boolean | null;
}

export interface SessionListParams {
  profile?: string | null;
  title?: string | null;
  limit?: number;
  include_hidden?: boolean;
}

export interface SessionListResult {
  sessions: SessionListRow[];
}

export interface SessionListRow {
  id: string;
  title: string | null;
  preview: string;
  started_at: number;
  message_count: number;
  source: string;
  resolved_id?: string | null;
  live_message_count?: number | null;
  _lineage_root_id?: string | null;
}

/** The facts of a session (§6.4). ``version`` is there when the agent is ready. */
export interface SessionLiveInfo {
  model: string;
  tools: Record<string, string[]>;
  skills: Record<string, string[]>;
  cwd: string;
  branch?: string | null;
  project?: Record<string, Json> | null;
  desktop_contract: number;
  profile_name: string;
  provider?: string | null;
  reasoning_effort?: string | null;
  service_tier?: string | null;
  fast?: boolean | null;
  yolo?: boolean | null;
  approval_mode?: string | null;
  terminal_backend?: string | null;
  personality?: string | null;
  running?: boolean | null;
  turn_started_at?: number | null;
  title?: string | null;
  stored_session_id?: string | null;
  version?: string | null;
  usage?: Usage | null;
  mcp_servers?: McpServerStatus[] | null;
  credential_warning?: string | null;
  lazy?: boolean | null;
  [more: string]: unknown;
}

export interface SessionMostRecentResult {
  session_id: string | null;
  title?: string | null;
  started_at?: number | null;
  source?: string | null;
}

export interface SessionParams {
  profile?: string | null;
  session_id: string;
}

export interface SessionReclaimed {
  session_id: string;
  stored_session_id: string;
  reason: string;
}

export interface SessionResumeParams {
  profile?: string | null;
  session_id: string;
  cols?: number | null;
  source?: string | null;
  lazy?: boolean;
  defer_history?: boolean;
  omit_messages?: boolean;
  eager_build?: boolean;
  close_on_disconnect?: boolean;
  inline_images?: boolean;
}

export interface SessionSaveResult {
  file: string;
}

export interface SessionSetHiddenParams {
  profile?: string | null;
  request_key?: string | null;
  idempotency_key?: string | null;
  session_id: string;
  hidden: boolean;
}

export interface SessionSetHiddenResult {
  hidden: boolean;
  session_key: string;
}

/** What ``session.activate`` and ``session.resume`` give (§3.6). */
export interface SessionSnapshot {
  session_id: string;
  session_key: string;
  message_count: number;
  messages: TranscriptMessage[];
  messages_omitted: boolean;
  info: SessionLiveInfo;
  running: boolean;
  turn_started_at: number | null;
  started_at: number;
  status: string;
  inflight: InflightTurn | null;
  open_requests: OpenRequestEntry[];
  stored_session_id?: string | null;
  resumed?: string | null;
  queued?: QueuedPrompt | null;
  pending_approval?: PendingApproval | null;
  todo_state?: TodoState | null;
  hydrating?: boolean | null;
  owner?: string | null;
  [more: string]: unknown;
}

export interface SessionStatusResult {
  output: string;
}

export interface SessionSteerResult {
  status: "queued" | "redirected" | "rejected";
  text: string;
}

/** ``text`` is judged before the session (§4.5). */
export interface SessionTextParams {
  profile?: string | null;
  request_key?: string | null;
  idempotency_key?: string | null;
  text: string;
  session_id: string;
}

export interface SessionTitleParams {
  profile?: string | null;
  request_key?: string | null;
  idempotency_key?: string | null;
  session_id: string;
  title?: string | null;
}

export interface SessionTitleResult {
  title: string | null;
  session_key?: string | null;
  pending?: boolean | null;
}

/** ``session_id`` is the stored id. */
export interface SessionTitled {
  session_id: string;
  title: string;
}

export interface SessionUndoParams {
  profile?: string | null;
  request_key?: string | null;
  idempotency_key?: string | null;
  session_id: string;
  intent?: "retry" | "undo" | null;
  count?: number;
}

export interface SessionUndoResult {
  removed: number;
  text: string;
  survivor_user_row_ids: (number | null)[];
}

export interface SessionUndoRewindResult {
  message_count: number;
  messages: TranscriptMessage[];
  survivor_user_row_ids: (number | null)[];
}

export interface SessionUsageResult {
  model?: string | null;
  input: number;
  output: number;
  reasoning: number;
  prompt: number;
  completion: number;
  total: number;
  calls: number;
  compressions?: number | null;
  cache_read?: number | null;
  cache_write?: number | null;
  cache_hit_pct?: number | null;
  context_used?: number | null;
  context_max?: number | null;
  context_percent?: number | null;
  context_source?: string | null;
  context_estimated?: boolean | null;
  active_subagents?: number | null;
  cost_usd?: number | null;
  cost_status?: string | null;
  [more: string]: unknown;
}

export interface SessionUsed {
  usage: Usage;
}

export interface SetupRuntimeCheckParams {
  profile?: string | null;
  provider?: string | null;
}

export interface SetupRuntimeCheckResult {
  ok: boolean;
  provider?: string | null;
  model?: string | null;
  source?: string | null;
  error?: string | null;
}

export interface SetupStatusResult {
  provider_configured: boolean;
  ready: boolean;
  inference_provider: string;
  profile: string;
}

export interface ShellExecParams {
  profile?: string | null;
  request_key?: string | null;
  idempotency_key?: string | null;
  command: string;
}

export interface ShellExecResult {
  stdout: string;
  stderr: string;
  code: number;
}

export interface SideAnswer {
  task_id: string;
  text: string;
  question?: string | null;
}

export interface SkillCatalogEntry {
  origin: string;
}

export interface SkillCommandRef {
  name: string;
  description?: string | null;
}

export interface SkillHit {
  name: string;
  description: string;
}

export interface SkillInspectInfo {
  name: string;
  description: string;
  source: string;
  identifier: string;
  tags: string[];
  skill_md_preview: string;
}

export interface SkillsManageParams {
  profile?: string | null;
  action?: string;
  query?: string | null;
  page?: number | null;
  page_size?: number | null;
}

export interface SkillsManageResult {
  skills?: Record<string, string[]> | null;
  info?: SkillInspectInfo | null;
  results?: SkillHit[] | null;
}

export interface SkillsReloadDiff {
  added: SkillCommandRef[];
  removed: SkillCommandRef[];
  unchanged: string[];
  total: number;
  commands: number;
}

export interface SkillsReloadParams {
  profile?: string | null;
  request_key?: string | null;
  idempotency_key?: string | null;
  session_id?: string | null;
}

export interface SkillsReloadResult {
  output: string;
  result: SkillsReloadDiff;
}

export interface SlashExecParams {
  profile?: string | null;
  request_key?: string | null;
  idempotency_key?: string | null;
  session_id: string;
  command: string;
}

export interface SlashExecResult {
  output?: string | null;
  warning?: string | null;
  type?: string | null;
  target?: string | null;
  message?: string | null;
  notice?: string | null;
  display?: string | null;
  name?: string | null;
  status?: string | null;
  state_changed?: string[] | null;
}

export interface SpawnTreeEntry {
  path: string;
  session_id: string | null;
  started_at: number | null;
  finished_at: number | null;
  label: string | null;
  count: number;
}

export interface SpawnTreeListParams {
  profile?: string | null;
  session_id?: string | null;
  cross_session?: boolean;
  limit?: number;
}

export interface SpawnTreeListResult {
  entries: SpawnTreeEntry[];
}

export interface SpawnTreeLoadParams {
  profile?: string | null;
  path: string;
}

export interface SpawnTreeLoadResult {
  subagents: Record<string, Json>[];
  [more: string]: unknown;
}

export interface SpawnTreeSaveParams {
  profile?: string | null;
  request_key?: string | null;
  idempotency_key?: string | null;
  subagents: Record<string, Json>[];
  session_id?: string | null;
  started_at?: number | null;
  finished_at?: number | null;
  label?: string | null;
}

export interface SpawnTreeSaveResult {
  path: string;
  session_id: string;
}

export interface StatusResult {
  status: "ok" | "expired";
}

export interface StatusUpdate {
  kind: string;
  text: string;
}

/** Who stopped it, and why: a person, or the host on its own account. */
export interface StopReason {
  source?: "user" | "host";
  text?: string | null;
}

export interface StoppedNode {
  node_id: string;
  kind: string;
  name: string;
}

export interface SubagentInterruptParams {
  profile?: string | null;
  request_key?: string | null;
  idempotency_key?: string | null;
  subagent_id: string;
  session_id?: string | null;
  reason?: StopReason | string | null;
}

export interface SubagentInterruptResult {
  found: boolean;
  subagent_id: string;
}

export interface SubagentListResult {
  subagents: SubagentRow[];
  delegations: FailedDelegation[];
}

export interface SubagentOutput {
  tool: string;
  preview: string;
  is_error: boolean;
}

export interface SubagentPayload {
  goal: string;
  task_count: number;
  task_index: number;
  subagent_id?: string | null;
  parent_id?: string | null;
  child_session_id?: string | null;
  delegation_id?: string | null;
  depth?: number | null;
  model?: string | null;
  tool_count?: number | null;
  toolsets?: string[] | null;
  input_tokens?: number | null;
  output_tokens?: number | null;
  reasoning_tokens?: number | null;
  api_calls?: number | null;
  files_read?: string[] | null;
  files_written?: string[] | null;
  output_tail?: SubagentOutput[] | null;
  tool_name?: string | null;
  tool_preview?: string | null;
  text?: string | null;
  status?: "queued" | "running" | "completed" | "failed" | "error" | "timeout" | "interrupted" | null;
  summary?: string | null;
  duration_seconds?: number | null;
  cause?: string | null;
  [more: string]: unknown;
}

export interface SubagentRow {
  subagent_id: string;
  parent_id: string | null;
  depth: number;
  goal: string;
  delegation_id: string;
  model: string;
  started_at: number | null;
  status: string;
  tool_count: number;
  last_tool?: string | null;
  accepting_steer?: boolean | null;
  owner_agent_session_id?: string | null;
}

export interface SubagentSteerParams {
  profile?: string | null;
  request_key?: string | null;
  idempotency_key?: string | null;
  text: string;
  session_id: string;
  subagent_id: string;
}

export interface SubagentSteerResult {
  status: "queued" | "rejected";
  subagent_id: string;
  text: string;
}

export interface SubagentTailParams {
  profile?: string | null;
  session_id: string;
  subagent_id: string;
}

export interface SubagentTailResult {
  subagent_id: string;
  available: boolean;
  text: string;
  truncated: boolean;
}

export interface SudoAsked {
  session_id: string;
  tool_call_id?: string | null;
  command?: string | null;
}

export interface SudoRespondParams {
  profile?: string | null;
  request_key?: string | null;
  idempotency_key?: string | null;
  session_id?: string | null;
  request_id: string;
  password?: string;
}

export interface SystemBatteryResult {
  available: boolean;
  percent?: number | null;
  plugged?: boolean | null;
  category?: "good" | "warn" | "bad" | "critical" | "dim" | null;
}

export interface TerminalClose {
  process_id: string;
}

export interface TerminalReadRequest {
  request_id: string;
  start?: number | null;
  count?: number | null;
}

export interface TerminalReadRespondParams {
  profile?: string | null;
  request_key?: string | null;
  idempotency_key?: string | null;
  session_id?: string | null;
  request_id: string;
  text?: string;
}

export interface TerminalResizeParams {
  profile?: string | null;
  session_id: string;
  cols?: number | null;
  rows?: number | null;
}

export interface TerminalResizeResult {
  cols: number;
}

export interface TextPayload {
  text: string;
}

export interface TodoItem {
  id: string;
  content: string;
  status: string;
}

export interface TodoState {
  todos: TodoItem[];
  revision: number;
}

export interface TodoUpdated {
  todos: TodoItem[];
  revision: number;
}

export interface ToolComplete {
  tool_id: string;
  name: string;
  args: Record<string, Json>;
  duration_s: number;
  result: Json;
  summary?: string | null;
  error?: string | null;
  inline_diff?: string | null;
  result_text?: string | null;
  todos?: Json[] | null;
  revision?: number | null;
}

export interface ToolGenerating {
  name: string;
}

export interface ToolOutputRisk {
  tool_id: string;
  name: string;
  risk: string;
  findings: string[];
  redacted: boolean;
}

export interface ToolProgress {
  tool_id: string;
  name: string;
  preview: string;
}

export interface ToolRow {
  name: string;
  description: string;
}

export interface ToolShowSection {
  name: string;
  tools: ToolRow[];
}

export interface ToolStart {
  tool_id: string;
  name: string;
  context: string;
  args: Record<string, Json>;
  node_id?: string | null;
  args_text?: string | null;
}

export interface ToolsConfigureParams {
  profile?: string | null;
  request_key?: string | null;
  idempotency_key?: string | null;
  action: "enable" | "disable";
  names: string[];
  session_id?: string | null;
}

export interface ToolsConfigureResult {
  changed: string[];
  enabled_toolsets: string[];
  missing_servers: string[];
  reset: boolean;
  unknown: string[];
  info?: SessionLiveInfo | null;
}

export interface ToolsShowResult {
  sections: ToolShowSection[];
  total: number;
}

export interface ToolsetRow {
  name: string;
  description: string;
  tool_count: number;
  enabled: boolean;
  tools?: string[] | null;
}

export interface ToolsetsResult {
  toolsets: ToolsetRow[];
}

export interface TourAsked {
  session_id: string;
  tool_call_id?: string | null;
  action: string;
  surface?: string | null;
  selector?: string | null;
  title?: string | null;
  text?: string | null;
  side?: string | null;
  steps?: Record<string, Json>[] | null;
  step_index?: number | null;
  preset?: string | null;
}

/** One message of the visible conversation (§3.10); tool rows have no ``row_id``. */
export interface TranscriptMessage {
  role: string;
  text?: string | null;
  content?: Json;
  timestamp?: number | null;
  row_id?: number | null;
  reasoning?: string | null;
  compacted?: boolean | null;
  display_kind?: string | null;
  display_metadata?: Record<string, Json> | null;
  name?: string | null;
  context?: string | null;
  tool_call_id?: string | null;
  args?: Record<string, Json> | null;
  [more: string]: unknown;
}

export interface TreeChanged {
  version: number;
  tree: TreeNode;
}

export interface TreeGetParams {
  profile?: string | null;
  node_id?: string | null;
}

export interface TreeGetResult {
  version: number;
  tree: TreeNode;
}

/** A node of the live tree and everything below it. */
export interface TreeNode {
  node_id: string;
  kind: string;
  name: string;
  state: string;
  age_s: number;
  cause?: string | null;
  reason?: string | null;
  deadline_in_s?: number | null;
  details?: Record<string, Json> | null;
  pids?: number[] | null;
  children: TreeNode[];
}

export interface TreeSubscribeParams {
  profile?: string | null;
  subscribed?: boolean;
}

export interface TreeSubscribeResult {
  subscribed: boolean;
  version: number;
}

/** Everything is 0 before the first call; what is not known is left out (§3.9). */
export interface Usage {
  model?: string | null;
  input: number;
  output: number;
  reasoning: number;
  prompt: number;
  completion: number;
  total: number;
  calls: number;
  compressions?: number | null;
  cache_read?: number | null;
  cache_write?: number | null;
  cache_hit_pct?: number | null;
  context_used?: number | null;
  context_max?: number | null;
  context_percent?: number | null;
  context_source?: string | null;
  context_estimated?: boolean | null;
  active_subagents?: number | null;
  cost_usd?: number | null;
  cost_status?: string | null;
  [more: string]: unknown;
}

/** Empty: the user skipped. */
export interface ValueAnswer {
  value: string;
}

export interface VaultCodeAsked {
  session_id: string;
  tool_call_id?: string | null;
  site?: string | null;
  hint?: string | null;
}

export interface VaultSaveLoginAsked {
  session_id: string;
  tool_call_id?: string | null;
  origin: string;
  site: string;
}

export interface VaultUnlockAsked {
  session_id: string;
  tool_call_id?: string | null;
  backend: string;
  display_name?: string | null;
}

export interface Methods {
  "agents.list": { params: EmptyParams; result: AgentsListResult };
  "approval.pending": { params: SessionParams; result: ApprovalPendingResult };
  "approval.received": { params: ApprovalReceivedParams; result: ApprovalReceivedResult };
  "approval.respond": { params: ApprovalRespondParams; result: ApprovalRespondResult };
  "browser.controller.detach": { params: SessionParams; result: BrowserDetachResult };
  "browser.controller.heartbeat": { params: SessionParams; result: BrowserHeartbeatResult };
  "browser.controller.register": { params: BrowserRegisterParams; result: BrowserRegisterResult };
  "browser.controller.result": { params: BrowserResultParams; result: BrowserResultResult };
  "clarify.lock": { params: ClarifyLockParams; result: ClarifyLockResult };
  "clarify.respond": { params: ClarifyRespondParams; result: StatusResult };
  "cli.exec": { params: CliExecParams; result: CliExecResult };
  "client.capabilities": { params: ClientCapabilitiesParams; result: ClientCapabilitiesResult };
  "clipboard.paste": { params: KeyedSessionParams; result: ImageAttachResult };
  "command.dispatch": { params: CommandDispatchParams; result: CommandDispatchResult };
  "command.resolve": { params: CommandResolveParams; result: CommandResolveResult };
  "commands.catalog": { params: OptionalSessionParams; result: CommandsCatalogResult };
  "complete.path": { params: CompletePathParams; result: CompleteResult };
  "complete.slash": { params: CompleteSlashParams; result: CompleteResult };
  "config.get": { params: ConfigGetParams; result: ConfigGetResult };
  "config.set": { params: ConfigSetParams; result: ConfigSetResult };
  "config.show": { params: EmptyParams; result: ConfigShowResult };
  "delegation.pause": { params: DelegationPauseParams; result: DelegationPauseResult };
  "delegation.status": { params: EmptyParams; result: DelegationStatusResult };
  "file.attach": { params: FileAttachParams; result: FileAttachResult };
  "gateway.capabilities": { params: EmptyParams; result: GatewayCapabilitiesResult };
  "gateway.ping": { params: EmptyParams; result: GatewayPingResult };
  "image.attach": { params: PathParams; result: ImageAttachResult };
  "image.attach_bytes": { params: ImageAttachBytesParams; result: ImageAttachResult };
  "image.detach": { params: PathParams; result: ImageDetachResult };
  "input.detect_drop": { params: InputDetectDropParams; result: InputDetectDropResult };
  "insights.get": { params: InsightsGetParams; result: InsightsGetResult };
  "llm.oneshot": { params: LlmOneshotParams; result: LlmOneshotResult };
  "machine.facts": { params: EmptyParams; result: MachineFactsResult };
  "mcp.servers.list": { params: EmptyParams; result: McpServersListResult };
  "mcp.servers.status": { params: EmptyParams; result: McpServersStatusResult };
  "mcp.servers.test": { params: McpServersTestParams; result: McpServersTestResult };
  "model.disconnect": { params: ModelDisconnectParams; result: ModelDisconnectResult };
  "model.options": { params: ModelOptionsParams; result: ModelOptionsResult };
  "model.save_key": { params: ModelSaveKeyParams; result: ModelSaveKeyResult };
  "paste.collapse": { params: PasteCollapseParams; result: PasteCollapseResult };
  "ping": { params: EmptyParams; result: PingResult };
  "plugins.list": { params: EmptyParams; result: PluginsListResult };
  "process.kill": { params: ProcessKillParams; result: ProcessKillResult };
  "process.list": { params: SessionParams; result: ProcessListResult };
  "process.stop": { params: ProcessStopParams; result: ProcessStopResult };
  "profiles.list": { params: ProfilesListParams; result: ProfilesListResult };
  "project.facts": { params: ProjectFactsParams; result: ProjectFactsResult };
  "prompt.background": { params: PromptBackgroundParams; result: PromptBackgroundResult };
  "prompt.btw": { params: PromptBackgroundParams; result: PromptBackgroundResult };
  "prompt.submit": { params: PromptSubmitParams; result: PromptSubmitResult };
  "reload.env": { params: EmptyKeyedParams; result: ReloadEnvResult };
  "reload.mcp": { params: ReloadMcpParams; result: ReloadMcpResult };
  "request.answer": { params: RequestAnswerParams; result: StatusResult };
  "rollback.diff": { params: RollbackDiffParams; result: RollbackDiffResult };
  "rollback.list": { params: SessionParams; result: RollbackListResult };
  "rollback.restore": { params: RollbackRestoreParams; result: RollbackRestoreResult };
  "scope.cancel": { params: ScopeCancelParams; result: ScopeCancelResult };
  "secret.respond": { params: SecretRespondParams; result: StatusResult };
  "session.activate": { params: SessionActivateParams; result: SessionSnapshot };
  "session.active_list": { params: SessionActiveListParams; result: SessionActiveListResult };
  "session.archive": { params: SessionArchiveParams; result: SessionArchiveResult };
  "session.branch": { params: SessionBranchParams; result: SessionBranchResult };
  "session.branch_stored": { params: SessionBranchStoredParams; result: SessionBranchResult };
  "session.branch_whole": { params: SessionBranchWholeParams; result: SessionBranchResult };
  "session.close": { params: SessionCloseParams; result: SessionCloseResult };
  "session.compress": { params: SessionCompressParams; result: SessionCompressResult };
  "session.context_breakdown": { params: SessionParams; result: SessionContextBreakdownResult };
  "session.create": { params: SessionCreateParams; result: SessionCreateResult };
  "session.cwd.set": { params: SessionCwdSetParams; result: LiveInfoResult };
  "session.delete": { params: KeyedSessionParams; result: SessionDeleteResult };
  "session.events.since": { params: SessionEventsSinceParams; result: SessionEventsSinceResult };
  "session.events.stats": { params: EmptyParams; result: SessionEventsStatsResult };
  "session.history": { params: SessionParams; result: SessionHistoryResult };
  "session.interrupt": { params: SessionInterruptParams; result: SessionInterruptResult };
  "session.list": { params: SessionListParams; result: SessionListResult };
  "session.most_recent": { params: EmptyParams; result: SessionMostRecentResult };
  "session.redirect": { params: SessionTextParams; result: SessionSteerResult };
  "session.resume": { params: SessionResumeParams; result: SessionSnapshot };
  "session.save": { params: KeyedSessionParams; result: SessionSaveResult };
  "session.set_hidden": { params: SessionSetHiddenParams; result: SessionSetHiddenResult };
  "session.status": { params: SessionParams; result: SessionStatusResult };
  "session.steer": { params: SessionTextParams; result: SessionSteerResult };
  "session.title": { params: SessionTitleParams; result: SessionTitleResult };
  "session.undo": { params: SessionUndoParams; result: SessionUndoResult };
  "session.undo_rewind": { params: KeyedSessionParams; result: SessionUndoRewindResult };
  "session.usage": { params: SessionParams; result: SessionUsageResult };
  "setup.runtime_check": { params: SetupRuntimeCheckParams; result: SetupRuntimeCheckResult };
  "setup.status": { params: EmptyParams; result: SetupStatusResult };
  "shell.exec": { params: ShellExecParams; result: ShellExecResult };
  "skills.manage": { params: SkillsManageParams; result: SkillsManageResult };
  "skills.reload": { params: SkillsReloadParams; result: SkillsReloadResult };
  "slash.exec": { params: SlashExecParams; result: SlashExecResult };
  "spawn_tree.list": { params: SpawnTreeListParams; result: SpawnTreeListResult };
  "spawn_tree.load": { params: SpawnTreeLoadParams; result: SpawnTreeLoadResult };
  "spawn_tree.save": { params: SpawnTreeSaveParams; result: SpawnTreeSaveResult };
  "subagent.interrupt": { params: SubagentInterruptParams; result: SubagentInterruptResult };
  "subagent.list": { params: SessionParams; result: SubagentListResult };
  "subagent.steer": { params: SubagentSteerParams; result: SubagentSteerResult };
  "subagent.tail": { params: SubagentTailParams; result: SubagentTailResult };
  "sudo.respond": { params: SudoRespondParams; result: StatusResult };
  "system.battery": { params: EmptyParams; result: SystemBatteryResult };
  "terminal.read.respond": { params: TerminalReadRespondParams; result: StatusResult };
  "terminal.resize": { params: TerminalResizeParams; result: TerminalResizeResult };
  "tools.configure": { params: ToolsConfigureParams; result: ToolsConfigureResult };
  "tools.list": { params: OptionalSessionParams; result: ToolsetsResult };
  "tools.show": { params: OptionalSessionParams; result: ToolsShowResult };
  "toolsets.list": { params: OptionalSessionParams; result: ToolsetsResult };
  "tree.get": { params: TreeGetParams; result: TreeGetResult };
  "tree.subscribe": { params: TreeSubscribeParams; result: TreeSubscribeResult };
}

export interface Events {
  "gateway.ready": GatewayReady;
  "message.start": undefined;
  "message.delta": TextPayload;
  "reasoning.delta": TextPayload;
  "reasoning.available": TextPayload;
  "thinking.delta": TextPayload;
  "message.interim": MessageInterim;
  "message.complete": MessageComplete;
  "message.steer": MessageSteer;
  "error": ErrorPayload;
  "tool.generating": ToolGenerating;
  "tool.start": ToolStart;
  "tool.progress": ToolProgress;
  "tool.complete": ToolComplete;
  "tool.output_risk": ToolOutputRisk;
  "todo.updated": TodoUpdated;
  "subagent.spawn_requested": SubagentPayload;
  "subagent.start": SubagentPayload;
  "subagent.thinking": SubagentPayload;
  "subagent.tool": SubagentPayload;
  "subagent.progress": SubagentPayload;
  "subagent.complete": SubagentPayload;
  "agent.terminal.output": AgentTerminalOutput;
  "terminal.close": TerminalClose;
  "background.complete": SideAnswer;
  "btw.complete": SideAnswer;
  "session.info": SessionLiveInfo;
  "session.title": SessionTitled;
  "session.usage": SessionUsed;
  "session.resume_progress": ResumeProgress;
  "status.update": StatusUpdate;
  "notification.show": NotificationShow;
  "notification.clear": NotificationClear;
  "request.cancel": RequestCancel;
  "browser.controller.command": BrowserCommand;
  "browser.controller.cancel": BrowserCancel;
  "tree.changed": TreeChanged;
  "sessions.changed": EmptyPayload;
  "session.reclaimed": SessionReclaimed;
  "approval.cancelled": ApprovalCancelled;
  "skin.changed": OpenShape;
  "approval.request": ApprovalRequest;
  "clarify.request": ClarifyRequest;
  "sudo.request": OlderRequest;
  "sudo.expire": OlderRequest;
  "secret.request": SecretRequest;
  "secret.expire": OlderRequest;
  "terminal.read.request": TerminalReadRequest;
}

export interface ServerRequests {
  "approval": { params: ApprovalAsked; result: ApprovalAnswer };
  "clarify": { params: ClarifyAsked; result: ClarifyAnswer };
  "connection": { params: ConnectionAsked; result: ConnectionAnswer };
  "preview.act": { params: PreviewActAsked; result: ValueAnswer };
  "preview.read": { params: LinesAsked; result: ValueAnswer };
  "secret": { params: SecretAsked; result: ValueAnswer };
  "sudo": { params: SudoAsked; result: ValueAnswer };
  "terminal.read": { params: LinesAsked; result: ValueAnswer };
  "tour": { params: TourAsked; result: ValueAnswer };
  "vault.code": { params: VaultCodeAsked; result: ValueAnswer };
  "vault.save_login": { params: VaultSaveLoginAsked; result: ValueAnswer };
  "vault.unlock_prompt": { params: VaultUnlockAsked; result: ValueAnswer };
  "window.read": { params: Asked; result: ValueAnswer };
}

export type MethodName = keyof Methods;
export type EventName = keyof Events;
export type ServerRequestName = keyof ServerRequests;

export type GatewayEvent = {
  [Name in EventName]: { type: Name; session_id?: string; seq?: number } & (Events[Name] extends undefined
    ? { payload?: undefined }
    : { payload: Events[Name] });
}[EventName];

export type ServerRequest = {
  [Name in ServerRequestName]: { id: string; method: Name; params: ServerRequests[Name]["params"] };
}[ServerRequestName];

export interface ErrorObject {
  code: number;
  message: string;
  data?: unknown;
}

export class GatewayError extends Error {
  constructor(readonly method: string, readonly error: ErrorObject) {
    super(`${method}: ${error.code} ${error.message}`);
  }
}

interface Pending {
  method: string;
  resolve(result: unknown): void;
  reject(error: Error): void;
}

/** One conversation over any transport: `send` writes one frame, `receive` takes one that has arrived. */
export class GatewayClient {
  onEvent: (event: GatewayEvent) => void = () => {};
  /** Return the answer, or nothing to decline. */
  onRequest: (request: ServerRequest) => Promise<object | undefined> | object | undefined = () => undefined;
  private readonly pending = new Map<string, Pending>();
  private calls = 0;

  constructor(private readonly send: (frame: string) => void) {}

  call<Name extends MethodName>(
    method: Name,
    ...[params]: Partial<Record<keyof Methods[Name]["params"], never>> extends Methods[Name]["params"]
      ? [params?: Methods[Name]["params"]]
      : [params: Methods[Name]["params"]]
  ): Promise<Methods[Name]["result"]> {
    const id = `r${++this.calls}`;
    return new Promise((resolve, reject) => {
      this.pending.set(id, { method, resolve: resolve as (result: unknown) => void, reject });
      this.send(JSON.stringify({ jsonrpc: "2.0", id, method, params: params ?? {} }));
    });
  }

  receive(frame: string): void {
    const message = JSON.parse(frame) as {
      id?: string | null;
      method?: string;
      params?: unknown;
      result?: unknown;
      error?: ErrorObject;
    };
    if (message.method === "event") {
      this.onEvent(message.params as GatewayEvent);
    } else if (message.method !== undefined && typeof message.id === "string") {
      void this.answer({ id: message.id, method: message.method, params: message.params } as ServerRequest);
    } else if (typeof message.id === "string") {
      this.settle(message.id, message.result, message.error);
    }
  }

  /** The transport is gone: everything that waits fails. */
  closed(): void {
    for (const [id, call] of this.pending) {
      this.pending.delete(id);
      call.reject(new Error(`${call.method}: the connection is closed`));
    }
  }

  private settle(id: string, result: unknown, error: ErrorObject | undefined): void {
    const call = this.pending.get(id);
    if (call === undefined) return;
    this.pending.delete(id);
    if (error === undefined) call.resolve(result);
    else call.reject(new GatewayError(call.method, error));
  }

  private async answer(request: ServerRequest): Promise<void> {
    const result = await this.onRequest(request);
    const reply = result === undefined ? { error: { code: -32601, message: "not supported here" } } : { result };
    this.send(JSON.stringify({ jsonrpc: "2.0", id: request.id, ...reply }));
  }
}
