// One entry of the conversation.
import { memo } from "preact/compat";
import { useState } from "preact/hooks";
import { rewind, undoRewind } from "../actions";
import type { AssistantItem, Item, NoticeItem, UserItem } from "../conversation";
import * as store from "../store";
import { Icon } from "./icons";
import { Markdown } from "./markdown";
import { CopyButton, IconButton } from "./parts";
import { ToolCard } from "./tool_card";

export const ItemView = memo(function ItemView({ item, editing }: { item: Item; editing: boolean }) {
  switch (item.kind) {
    case "user":
      return editing ? <PromptEditor item={item} /> : <Prompt item={item} />;
    case "assistant":
      return <Answer item={item} />;
    case "tool":
      return <ToolCard item={item} />;
    case "notice":
      return <Notice item={item} />;
  }
});

function Prompt({ item }: { item: UserItem }) {
  return (
    <article class={`prompt ${item.note ? "noted" : ""}`} aria-label={item.note ?? "You"}>
      {item.note && <span class="tag">{item.note}</span>}
      {item.text && <div class="bubble">{item.text}</div>}
      {item.images.map((url, index) => (
        <img key={index} src={url} alt="attached picture" class="attached" />
      ))}
      {item.rowId !== undefined && (
        <div class="item-tools">
          <IconButton icon="edit" label="Edit and ask again from here" onClick={() => (store.editing.value = item.id)} />
        </div>
      )}
    </article>
  );
}

function PromptEditor({ item }: { item: UserItem }) {
  const [text, setText] = useState(item.text);
  const cancel = (): void => void (store.editing.value = null);
  const save = (): void => {
    if (text.trim()) void rewind(item, text.trim());
  };
  return (
    <form
      class="prompt-editor"
      onSubmit={(event) => {
        event.preventDefault();
        save();
      }}
    >
      <label for={`edit-${item.id}`}>Edit and ask again. What came after it is taken back.</label>
      <textarea
        id={`edit-${item.id}`}
        autofocus
        ref={(element) => {
          if (element && document.activeElement !== element) element.focus();
        }}
        rows={Math.min(12, Math.max(2, text.split("\n").length))}
        value={text}
        onInput={(event) => setText(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key === "Escape") {
            event.preventDefault();
            event.stopPropagation();
            cancel();
          } else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
            event.preventDefault();
            save();
          }
        }}
      />
      <div class="dialog-buttons">
        <button type="button" onClick={cancel}>
          Cancel
        </button>
        <button type="submit" class="primary" disabled={!text.trim()}>
          Ask again
        </button>
      </div>
    </form>
  );
}

function Answer({ item }: { item: AssistantItem }) {
  if (!item.text.trim() && !item.reasoning) return null;
  return (
    <article class={`answer ${item.streaming ? "streaming" : ""}`} aria-label="Hermes">
      {item.reasoning && <Reasoning text={item.reasoning} live={item.streaming && !item.text} />}
      {item.text.trim() && <Markdown text={item.text} />}
      {!item.streaming && item.text.trim() && (
        <div class="item-tools">
          <CopyButton text={item.text.trim()} />
        </div>
      )}
    </article>
  );
}

function Reasoning({ text, live }: { text: string; live: boolean }) {
  return (
    <details class="reasoning">
      <summary>
        <Icon name="chevron" />
        {live ? "Thinking…" : "Thoughts"}
      </summary>
      <div class="reasoning-text">{text}</div>
    </details>
  );
}

function Notice({ item }: { item: NoticeItem }) {
  return (
    <div class={`notice ${item.level} ${item.preformatted ? "preformatted" : ""}`} role={item.level === "error" ? "alert" : undefined}>
      <span>{item.text}</span>
      {item.action === "undo-rewind" && (
        <button type="button" class="quiet" onClick={() => void undoRewind()}>
          Undo
        </button>
      )}
    </div>
  );
}
