import { useState } from "preact/hooks";
import { deleteSession, logOut, newSession, openSession } from "../actions";
import * as store from "../store";
import type { Theme } from "../store";
import { Dialog, IconButton } from "./parts";

interface Row {
  key: string;
  title: string;
  status: string | null;
  at: number;
}

const WORDS: Record<string, string> = { working: "working", streaming: "working", waiting: "waits for you", starting: "starting" };

function rows(): Row[] {
  const live = new Map(store.live.value.map((session) => [session.session_key, session]));
  const known = store.stored.value.map((session) => ({
    key: session.id,
    title: session.title || live.get(session.id)?.title || session.preview || "Untitled",
    status: live.get(session.id)?.status ?? null,
    at: live.get(session.id)?.last_active ?? session.started_at,
  }));
  const seen = new Set(known.map((row) => row.key));
  const open = store.conversation.value?.key;
  const unstored = store.live.value
    .filter((session) => !seen.has(session.session_key) && (session.session_key === open || session.status !== "idle"))
    .map((session) => ({
      key: session.session_key,
      title: session.title || session.preview || "New session",
      status: session.status,
      at: session.last_active,
    }));
  return [...unstored, ...known];
}

export function Sidebar() {
  const [doomed, setDoomed] = useState<Row | null>(null);
  const open = store.sidebarOpen.value;
  const current = store.conversation.value?.key;
  return (
    <>
      {open && <div class="veil" onClick={() => (store.sidebarOpen.value = false)} />}
      <nav class={`sidebar ${open ? "open" : ""}`} aria-label="Sessions">
        <div class="sidebar-head">
          <span class="brand">Hermes</span>
          <button type="button" class="new" onClick={() => void newSession()}>
            New session
          </button>
        </div>
        <ul class="sessions">
          {rows().map((row) => (
            <li key={row.key} class={row.key === current ? "current" : ""}>
              <button
                type="button"
                class="session"
                aria-current={row.key === current ? "page" : undefined}
                onClick={() => void openSession(row.key)}
              >
                <span class={`dot ${row.status ?? "stored"}`} aria-hidden="true" />
                <span class="session-title">{row.title}</span>
                {row.status && WORDS[row.status] && <span class="session-status">{WORDS[row.status]}</span>}
              </button>
              <IconButton icon="trash" label={`Delete ${row.title}`} class="row-tool" onClick={() => setDoomed(row)} />
            </li>
          ))}
        </ul>
        <div class="sidebar-foot">
          <ThemeChoice />
          <IconButton icon="exit" label="Forget the key and leave" onClick={logOut} />
        </div>
      </nav>
      {doomed && (
        <Dialog title="Delete this session?" role="alertdialog" onEscape={() => setDoomed(null)}>
          <p>“{doomed.title}” and its messages are deleted. What runs in it is stopped.</p>
          <div class="dialog-buttons">
            <button type="button" data-autofocus onClick={() => setDoomed(null)}>
              Keep it
            </button>
            <button
              type="button"
              class="danger"
              onClick={() => {
                void deleteSession(doomed.key);
                setDoomed(null);
              }}
            >
              Delete
            </button>
          </div>
        </Dialog>
      )}
    </>
  );
}

const THEMES: [Theme, "auto" | "sun" | "moon", string][] = [
  ["auto", "auto", "Colours of the system"],
  ["light", "sun", "Light"],
  ["dark", "moon", "Dark"],
];

function ThemeChoice() {
  return (
    <div class="segments" role="group" aria-label="Colours">
      {THEMES.map(([value, icon, label]) => (
        <IconButton key={value} icon={icon} label={label} pressed={store.theme.value === value} onClick={() => store.setTheme(value)} />
      ))}
    </div>
  );
}
