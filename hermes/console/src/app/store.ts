// What the page knows, as signals. Only `actions.ts` changes it; the views read it.
import { computed, signal } from "@preact/signals";
import type { Attachment } from "./attachments";
import type { ConnectionState } from "./connection";
import type { Conversation } from "./conversation";
import type { Timeline } from "./timeline";
import type { LiveSession, OpenRequest, StoredSession, TreeNode } from "./wire";

export type Theme = "auto" | "light" | "dark";
export type Panel = "tree" | "timeline" | null;

export interface Toast {
  id: number;
  text: string;
  level: "info" | "error";
}

const KEY = "hermes.key";
const OPEN = "hermes.session";
const THEME = "hermes.theme";

export const key = signal<string | null>(sessionStorage.getItem(KEY));
export const connection = signal<ConnectionState>("closed");
export const retryAt = signal(0);
/** A connection was up once with this key: from then on the page stays while the server is away. */
export const wasOpen = signal(false);
export const loginError = signal<string | null>(null);

export const stored = signal<StoredSession[]>([]);
export const live = signal<LiveSession[]>([]);
export const conversation = signal<Conversation | null>(null);
export const loading = signal(false);
export const requests = signal<OpenRequest[]>([]);
export const tree = signal<{ root: TreeNode; at: number } | null>(null);
export const timeline = signal<Timeline | null>(null);
export const commands = signal<[string, string][]>([]);

export const theme = signal<Theme>((localStorage.getItem(THEME) as Theme | null) ?? "auto");
export const panel = signal<Panel>(null);
export const sidebarOpen = signal(false);
export const toasts = signal<Toast[]>([]);
export const draft = signal("");
export const attachments = signal<Attachment[]>([]);
export const editing = signal<string | null>(null);
/** What a screen reader is told, politely. */
export const announcement = signal("");

export const running = computed(() => conversation.value?.running === true);
export const questions = computed(() => {
  const id = conversation.value?.id;
  return requests.value.filter((request) => request.params.session_id === id);
});

export function keepKey(value: string | null): void {
  key.value = value;
  if (value === null) sessionStorage.removeItem(KEY);
  else sessionStorage.setItem(KEY, value);
}

export function rememberOpen(sessionKey: string | null): void {
  if (sessionKey === null) sessionStorage.removeItem(OPEN);
  else sessionStorage.setItem(OPEN, sessionKey);
}

export function rememberedOpen(): string | null {
  return sessionStorage.getItem(OPEN);
}

export function setTheme(value: Theme): void {
  theme.value = value;
  localStorage.setItem(THEME, value);
  applyTheme();
}

export function applyTheme(): void {
  if (theme.value === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme.value;
}

export function toast(text: string, level: Toast["level"] = "info"): void {
  const id = Date.now() + Math.random();
  toasts.value = [...toasts.value.slice(-3), { id, text, level }];
  setTimeout(() => dismissToast(id), level === "error" ? 12_000 : 5_000);
}

export function dismissToast(id: number): void {
  toasts.value = toasts.value.filter((one) => one.id !== id);
}
