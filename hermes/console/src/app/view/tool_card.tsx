// A tool call: what it is to do, what it says while it runs, what came of it.
import { useEffect, useState } from "preact/hooks";
import { cancelNode } from "../actions";
import { stoppedText, type ToolItem } from "../conversation";
import * as store from "../store";
import { Diff } from "./diff";
import { Icon } from "./icons";
import { duration, useNow } from "./parts";

export function ToolCard({ item }: { item: ToolItem }) {
  const [open, setOpen] = useState(item.state === "running" || item.diff !== undefined);
  const [touched, setTouched] = useState(false);
  useEffect(() => {
    // What a person has opened or closed stays as it is.
    if (!touched && item.state !== "running" && item.diff === undefined) setOpen(false);
    if (!touched && item.diff !== undefined) setOpen(true);
  }, [item.state]);
  return (
    <section class={`tool ${item.state}`} aria-label={`Tool ${item.name}`}>
      <div class="tool-head">
        <button
          type="button"
          class="tool-toggle"
          aria-expanded={open}
          onClick={() => {
            setTouched(true);
            setOpen(!open);
          }}
        >
          <Icon name={item.state === "running" ? "tool" : item.state === "done" ? "check" : "close"} />
          <span class="tool-name">{item.name}</span>
          <span class="tool-context">{item.context}</span>
          <Elapsed item={item} />
        </button>
        {item.state === "running" && item.nodeId && (
          <button type="button" class="quiet stop-one" aria-label={`Stop ${item.name}`} onClick={() => void cancelNode(item.nodeId!, "")}>
            Stop
          </button>
        )}
      </div>
      {open && <Body item={item} />}
      {!open && <Failure item={item} />}
    </section>
  );
}

function Elapsed({ item }: { item: ToolItem }) {
  const running = item.state === "running" && item.startedAt !== undefined && store.running.value;
  const now = useNow(250, running);
  if (item.seconds !== undefined) return <span class="elapsed">{duration(item.seconds * 1000)}</span>;
  if (!running) return null;
  return <span class="elapsed">{duration(Math.max(0, Math.floor((now - item.startedAt!) / 1000)) * 1000)}</span>;
}

function Body({ item }: { item: ToolItem }) {
  const args = Object.entries(item.args);
  const result = resultText(item);
  return (
    <div class="tool-body">
      {args.length > 0 && (
        <dl class="args">
          {args.map(([name, value]) => (
            <div key={name}>
              <dt>{name}</dt>
              <Argument value={typeof value === "string" ? value : JSON.stringify(value, null, 2)} />
            </div>
          ))}
        </dl>
      )}
      {item.diff ? <Diff text={item.diff} /> : null}
      {item.state === "running" && item.output && <Output label="Output so far" text={item.output} />}
      {item.state !== "running" && result && !item.diff && <Output label="Result" text={result} />}
      <Failure item={item} />
    </div>
  );
}

function Failure({ item }: { item: ToolItem }) {
  const text = item.summary || item.error;
  if (item.state !== "failed" || !text) return null;
  // The server's short form of a cancelled call: cause, and reason if there is one.
  const cancelled = /^cancelled \((\w+)(?:: (.*))?\)$/s.exec(text);
  return <p class="tool-summary">{cancelled ? stoppedText(cancelled[1], cancelled[2]) : text}</p>;
}

/** A long one scrolls, so the keyboard must be able to get there. */
function Argument({ value }: { value: string }) {
  const isLong = value.length > 400 || value.split("\n").length > 8;
  return <dd tabIndex={isLong ? 0 : undefined}>{value}</dd>;
}

function Output({ label, text }: { label: string; text: string }) {
  return (
    <pre class="output" tabIndex={0} role="region" aria-label={label}>
      {text}
    </pre>
  );
}

function resultText(item: ToolItem): string {
  const result = item.result as any;
  if (result === undefined || result === null) return "";
  if (typeof result === "string") return result;
  if (typeof result.output === "string") {
    const code = typeof result.exit_code === "number" && result.exit_code !== 0 ? `\n[exit ${result.exit_code}]` : "";
    return `${result.output.trimEnd()}${code}`.trim();
  }
  if (typeof result.content === "string" && Object.keys(result).length < 4) return result.content;
  return JSON.stringify(result, null, 2);
}
