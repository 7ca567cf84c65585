import type { RefObject } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { attach } from "../attachments";
import * as store from "../store";
import { Composer } from "./composer";
import { ItemView } from "./items";
import { duration, useNow } from "./parts";

const NEAR_END = 80;
const NEAR_START = 600;
const STEP = 200;

/** Of a long conversation only the end is drawn, and more of it when somebody scrolls there. */
function useDrawn(scroller: RefObject<HTMLDivElement>, follows: RefObject<boolean>): { first: number; earlier(): void } {
  const open = store.conversation.value;
  const drawn = useRef({ key: "", first: 0 });
  const fromEnd = useRef<number | null>(null);
  const [, again] = useState(0);
  const count = open?.items.length ?? 0;
  const last = Math.max(0, count - STEP);
  if (drawn.current.key !== open?.key || (follows.current && last - drawn.current.first > STEP)) {
    drawn.current = { key: open?.key ?? "", first: last };
  }
  drawn.current.first = Math.min(drawn.current.first, last);
  useLayoutEffect(() => {
    const element = scroller.current;
    if (!element || fromEnd.current === null) return;
    // What was looked at stays where it is.
    element.scrollTop = element.scrollHeight - fromEnd.current;
    fromEnd.current = null;
  });
  const earlier = (): void => {
    const element = scroller.current;
    if (!element || drawn.current.first === 0 || fromEnd.current !== null) return;
    fromEnd.current = element.scrollHeight - element.scrollTop;
    follows.current = false;
    drawn.current.first = Math.max(0, drawn.current.first - STEP);
    again((number) => number + 1);
  };
  return { first: drawn.current.first, earlier };
}

export function Chat() {
  const open = store.conversation.value;
  const scroller = useRef<HTMLDivElement>(null);
  const follows = useRef(true);
  const { first, earlier } = useDrawn(scroller, follows);
  const [away, setAway] = useState(false);
  const [over, setOver] = useState(false);
  useLayoutEffect(() => {
    const element = scroller.current;
    if (element && follows.current) element.scrollTop = element.scrollHeight;
  });
  useEffect(() => {
    follows.current = true;
    setAway(false);
  }, [open?.id]);
  const onScroll = (): void => {
    const element = scroller.current;
    if (!element) return;
    follows.current = element.scrollHeight - element.scrollTop - element.clientHeight < NEAR_END;
    setAway(!follows.current);
    if (element.scrollTop < NEAR_START) earlier();
  };
  const toEnd = (): void => {
    follows.current = true;
    const element = scroller.current;
    if (element) element.scrollTop = element.scrollHeight;
    setAway(false);
  };
  return (
    <main
      class={`chat ${over ? "drop-here" : ""}`}
      onDragOver={(event) => {
        if (!event.dataTransfer?.types.includes("Files")) return;
        event.preventDefault();
        setOver(true);
      }}
      onDragLeave={(event) => {
        if (!event.currentTarget.contains(event.relatedTarget as Node | null)) setOver(false);
      }}
      onDrop={(event) => {
        setOver(false);
        if (!event.dataTransfer?.files.length) return;
        event.preventDefault();
        void attach(event.dataTransfer.files);
      }}
    >
      <div class="scroller" ref={scroller} onScroll={onScroll} tabIndex={0} role="region" aria-label="Conversation">
        <div class="column" aria-busy={store.running.value}>
          {open === null || store.loading.value ? <p class="muted centred">Loading…</p> : null}
          {open !== null && open.items.length === 0 && !store.loading.value && <Welcome />}
          {first > 0 && (
            <button type="button" class="quiet centred" onClick={earlier}>
              {first} earlier entries
            </button>
          )}
          {open?.items.slice(first).map((item) => <ItemView key={item.id} item={item} editing={store.editing.value === item.id} />)}
          {open?.running && <Working />}
          {open?.queued.map((text, index) => (
            <div key={index} class="queued">
              <span class="tag">Queued</span> {text}
            </div>
          ))}
        </div>
      </div>
      {away && (
        <button type="button" class="to-end" onClick={toEnd}>
          Newest ↓
        </button>
      )}
      <Composer />
    </main>
  );
}

function Welcome() {
  const info = store.conversation.value?.info;
  return (
    <div class="welcome">
      <h2>What shall we do?</h2>
      <p class="muted">
        Hermes works in <code>{info?.cwd ?? "its folder"}</code>. It asks before it does something risky, and whatever runs can be
        stopped, as a whole or piece by piece.
      </p>
      {info?.credential_warning && <p class="notice warning">{info.credential_warning}</p>}
    </div>
  );
}

function Working() {
  const open = store.conversation.value;
  const started = store.timeline.value?.ended_at === null ? store.timeline.value.started_at : null;
  const now = useNow(1000);
  const text = open?.stopping ? "Stopping…" : store.questions.value.length > 0 ? "Waits for your answer" : open?.status || "Working…";
  return (
    <p class="busy-line">
      <span class="pulse" aria-hidden="true" />
      {text}
      {started !== null && now - started > 1500 && <span class="muted"> {duration(Math.floor((now - started) / 1000) * 1000)}</span>}
    </p>
  );
}
