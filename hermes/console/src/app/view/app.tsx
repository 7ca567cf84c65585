import { useEffect } from "preact/hooks";
import { stop } from "../actions";
import * as store from "../store";
import { Chat } from "./chat";
import { Header } from "./header";
import { Login } from "./login";
import { Side } from "./side";
import { Questions } from "./questions";
import { Sidebar } from "./sidebar";

export function App() {
  const inside = store.key.value !== null && (store.wasOpen.value || store.conversation.value !== null);
  return (
    <>
      {inside ? <Workspace /> : <Login />}
      <Toasts />
      <div class="visually-hidden" role="status" aria-live="polite">
        {store.announcement.value}
      </div>
    </>
  );
}

function Workspace() {
  useEffect(() => {
    const onKey = (event: KeyboardEvent): void => {
      if (event.key !== "Escape" || event.defaultPrevented || event.isComposing) return;
      if (document.querySelector("[role='dialog'],[role='alertdialog']")) return;
      if (store.sidebarOpen.value) store.sidebarOpen.value = false;
      else if (store.running.value) void stop();
    };
    document.addEventListener("keydown", onKey);
    return () => document.removeEventListener("keydown", onKey);
  }, []);
  return (
    <div class={`workspace ${store.panel.value ? "with-panel" : ""}`}>
      <a class="skip" href="#composer">
        Skip to the message box
      </a>
      <Sidebar />
      <div class="middle">
        <Header />
        <Chat />
      </div>
      {store.panel.value && <Side />}
      <Questions />
    </div>
  );
}

function Toasts() {
  return (
    <div class="toasts" role="region" aria-label="Messages" aria-live="polite">
      {store.toasts.value.map((toast) => (
        <div key={toast.id} class={`toast ${toast.level}`} role={toast.level === "error" ? "alert" : undefined}>
          <span>{toast.text}</span>
          <button type="button" class="quiet" onClick={() => store.dismissToast(toast.id)}>
            Dismiss
          </button>
        </div>
      ))}
    </div>
  );
}
