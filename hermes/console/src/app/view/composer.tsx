// Where one writes: send, steer, queue, stop, and the completion of commands.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { send, stop } from "../actions";
import { attach, detach } from "../attachments";
import * as store from "../store";
import { Icon } from "./icons";
import { IconButton } from "./parts";

const MAX_SUGGESTIONS = 8;
const MAX_HEIGHT = 240;

const isMac = /mac/i.test(navigator.userAgent);

function suggestions(text: string): [string, string][] {
  if (!/^\/[\w-]*$/.test(text)) return [];
  const fitting = store.commands.value.filter(([name]) => name.startsWith(text) && name !== text);
  return fitting.sort(([a], [b]) => a.length - b.length || a.localeCompare(b)).slice(0, MAX_SUGGESTIONS);
}

export function Composer() {
  const area = useRef<HTMLTextAreaElement>(null);
  const [chosen, setChosen] = useState(0);
  const [dismissed, setDismissed] = useState("");
  const text = store.draft.value;
  const running = store.running.value;
  const given = store.attachments.value;
  const empty = !text.trim() && given.length === 0;
  const offered = dismissed === text ? [] : suggestions(text);
  useLayoutEffect(() => {
    const element = area.current;
    if (!element) return;
    element.style.height = "auto";
    element.style.height = `${Math.min(element.scrollHeight, MAX_HEIGHT)}px`;
  }, [text]);
  useEffect(() => setChosen(0), [text]);
  useEffect(() => area.current?.focus(), []);
  const take = (name: string): void => {
    store.draft.value = `${name} `;
    area.current?.focus();
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.isComposing) return;
    if (offered.length > 0 && completion(event, offered, chosen, setChosen, take, () => setDismissed(text))) return;
    if (event.key === "Enter" && !event.shiftKey && (event.ctrlKey || event.metaKey || !isTouch())) {
      event.preventDefault();
      void send(event.altKey ? "queue" : "steer");
    }
  };
  return (
    <div class="composer-zone">
      {offered.length > 0 && <Suggestions offered={offered} chosen={chosen} take={take} />}
      {given.length > 0 && <Attached />}
      <form
        class="composer"
        onSubmit={(event) => {
          event.preventDefault();
          void send("steer");
        }}
      >
        <FilePicker />
        <textarea
          id="composer"
          ref={area}
          rows={1}
          value={text}
          placeholder={running ? "Say something to the running turn" : "Message Hermes"}
          aria-label="Message"
          aria-describedby="composer-hint"
          role="combobox"
          aria-autocomplete="list"
          aria-expanded={offered.length > 0}
          aria-controls="suggestions"
          aria-activedescendant={offered.length > 0 ? `suggestion-${chosen}` : undefined}
          onInput={(event) => (store.draft.value = event.currentTarget.value)}
          onKeyDown={onKeyDown}
          onPaste={(event) => {
            const files = event.clipboardData?.files;
            if (!files?.length) return;
            event.preventDefault();
            void attach(files);
          }}
        />
        <div class="composer-buttons">
          {running && !empty && (
            <button type="button" onClick={() => void send("queue")} title="Runs as a turn of its own when this one has ended">
              Queue
            </button>
          )}
          {running && <StopButton />}
          {running ? (
            given.length === 0 &&
            text.trim() && (
              <button type="submit" class="primary" title="The model reads it after the next tool">
                Steer
              </button>
            )
          ) : (
            <button type="submit" class="primary round" aria-label="Send" title="Send" disabled={empty}>
              <Icon name="send" />
            </button>
          )}
        </div>
      </form>
      <p id="composer-hint" class="hint">
        {running && given.length > 0
          ? "Enter queues: pictures and files make a turn of their own · Esc stops"
          : running
          ? `Enter steers · ${isMac ? "⌥" : "Alt"}+Enter queues · Esc stops`
          : `Enter or ${isMac ? "⌘" : "Ctrl"}+Enter sends · Shift+Enter breaks the line · / for commands`}
      </p>
    </div>
  );
}

function FilePicker() {
  const input = useRef<HTMLInputElement>(null);
  return (
    <>
      <input
        ref={input}
        type="file"
        id="files"
        multiple
        hidden
        aria-label="Pictures and files"
        onChange={(event) => {
          const files = [...(event.currentTarget.files ?? [])];
          // The same file may be chosen again after it was taken away.
          event.currentTarget.value = "";
          void attach(files);
          document.getElementById("composer")?.focus();
        }}
      />
      <IconButton icon="clip" label="Attach pictures or files" onClick={() => input.current?.click()} />
    </>
  );
}

function takeAway(id: number): void {
  detach(id);
  // The button that had the focus is gone.
  document.getElementById("composer")?.focus();
}

function Attached() {
  return (
    <ul class="attachments" aria-label="Goes with the message">
      {store.attachments.value.map((one) => (
        <li key={one.id}>
          {one.isImage ? <img src={one.data} alt="" /> : <Icon name="clip" />}
          <span class="attachment-name">{one.name}</span>
          <IconButton icon="close" label={`Take ${one.name} away`} onClick={() => takeAway(one.id)} />
        </li>
      ))}
    </ul>
  );
}

function isTouch(): boolean {
  return matchMedia("(pointer: coarse)").matches;
}

function completion(
  event: KeyboardEvent,
  offered: [string, string][],
  chosen: number,
  setChosen: (index: number) => void,
  take: (name: string) => void,
  dismiss: () => void,
): boolean {
  const name = offered[chosen]?.[0] ?? "";
  if (event.key === "ArrowDown") setChosen((chosen + 1) % offered.length);
  else if (event.key === "ArrowUp") setChosen((chosen + offered.length - 1) % offered.length);
  else if (event.key === "Tab" && !event.shiftKey) take(name);
  else if (event.key === "Enter" && !event.ctrlKey && !event.metaKey && !event.shiftKey) take(name);
  else if (event.key === "Escape") dismiss();
  else return false;
  event.preventDefault();
  event.stopPropagation();
  return true;
}

function Suggestions({ offered, chosen, take }: { offered: [string, string][]; chosen: number; take(name: string): void }) {
  return (
    <ul id="suggestions" class="suggestions" role="listbox" aria-label="Commands">
      {offered.map(([name, description], index) => (
        <li
          key={name}
          id={`suggestion-${index}`}
          role="option"
          aria-selected={index === chosen}
          // The box keeps the focus.
          onMouseDown={(event) => {
            event.preventDefault();
            take(name);
          }}
        >
          <code>{name}</code>
          <span>{description}</span>
        </li>
      ))}
    </ul>
  );
}

function StopButton() {
  const [asking, setAsking] = useState(false);
  const [reason, setReason] = useState("");
  const stopping = store.conversation.value?.stopping === true;
  const finish = (): void => {
    setAsking(false);
    setReason("");
  };
  return (
    <div class="stop-group">
      <button type="button" class="stop" disabled={stopping} onClick={() => void stop()}>
        <Icon name="stop" />
        {stopping ? "Stopping…" : "Stop"}
      </button>
      <IconButton icon="down" label="Stop and say why" expanded={asking} class="stop-more" onClick={() => setAsking(!asking)} />
      {asking && (
        <div
          class="popover"
          role="group"
          aria-label="Stop and say why"
          onKeyDown={(event) => {
            if (event.key === "Escape") {
              event.preventDefault();
              event.stopPropagation();
              finish();
            } else if (event.key === "Enter") {
              event.preventDefault();
              void stop(reason);
              finish();
            }
          }}
        >
          <label for="stop-reason">Why? It is kept with the turn.</label>
          <div class="row">
            <input
              id="stop-reason"
              type="text"
              maxLength={200}
              value={reason}
              ref={(element) => element?.focus()}
              onInput={(event) => setReason(event.currentTarget.value)}
            />
            <button
              type="button"
              class="stop"
              onClick={() => {
                void stop(reason);
                finish();
              }}
            >
              Stop
            </button>
          </div>
        </div>
      )}
    </div>
  );
}
