import { useEffect, useRef, useState } from "preact/hooks";
import { renameSession } from "../actions";
import { retryNow } from "../gateway";
import * as store from "../store";
import { Meter } from "./meter";
import { ModelPicker } from "./model_picker";
import { IconButton, useNow } from "./parts";

export function Header() {
  const open = store.conversation.value;
  return (
    <header class="top">
      <IconButton
        icon="menu"
        label="Sessions"
        class="only-narrow"
        expanded={store.sidebarOpen.value}
        onClick={() => (store.sidebarOpen.value = !store.sidebarOpen.value)}
      />
      <Title />
      <div class="top-tools">
        {open && <ModelPicker />}
        {open && <Meter usage={open.usage} />}
        <IconButton icon="tree" label="Live tree" pressed={store.panel.value === "tree"} onClick={() => toggle("tree")} />
        <IconButton
          icon="clock"
          label="Timeline of the last turn"
          pressed={store.panel.value === "timeline"}
          onClick={() => toggle("timeline")}
        />
      </div>
      <ConnectionBar />
    </header>
  );
}

function toggle(panel: "tree" | "timeline"): void {
  store.panel.value = store.panel.value === panel ? null : panel;
}

function Title() {
  const open = store.conversation.value;
  const [editing, setEditing] = useState(false);
  const input = useRef<HTMLInputElement>(null);
  const first = open?.items.find((item) => item.kind === "user");
  const title = open?.title || (first?.kind === "user" ? first.text.slice(0, 80) : "") || "New session";
  useEffect(() => {
    document.title = `${store.running.value ? "● " : ""}${title} · Hermes`;
  }, [title, store.running.value]);
  useEffect(() => input.current?.select(), [editing]);
  if (!editing) {
    return (
      <h1 class="title">
        <button type="button" title="Rename" disabled={!open} onClick={() => setEditing(true)}>
          {title}
        </button>
      </h1>
    );
  }
  return (
    <form
      class="title"
      onSubmit={(event) => {
        event.preventDefault();
        void renameSession(input.current?.value ?? "");
        setEditing(false);
      }}
    >
      <input
        ref={input}
        aria-label="Title of the session"
        defaultValue={open?.title ?? ""}
        onBlur={() => setEditing(false)}
        onKeyDown={(event) => {
          if (event.key !== "Escape") return;
          event.preventDefault();
          setEditing(false);
        }}
      />
    </form>
  );
}

function ConnectionBar() {
  const state = store.connection.value;
  const now = useNow(500, state === "waiting");
  if (state === "open") return null;
  const seconds = Math.max(0, Math.ceil((store.retryAt.value - now) / 1000));
  return (
    <div class="connection" role="status">
      {state === "waiting" ? (
        <>
          <span>Connection lost. Trying again{seconds > 0 ? ` in ${seconds} s` : ""}; what runs goes on.</span>
          <button type="button" class="quiet" onClick={retryNow}>
            Now
          </button>
        </>
      ) : (
        <span>Connecting…</span>
      )}
    </div>
  );
}
