// The last turn on a line of time: who waited for what, when it was told to stop, how long its clean-up took.
import * as store from "../store";
import { causeText } from "../conversation";
import { SHOWN_AS_WAIT, exported, type Span, type Timeline } from "../timeline";
import { Icon } from "./icons";
import { duration, useNow } from "./parts";

export function TimelinePanel() {
  const timeline = store.timeline.value;
  const now = useNow(250, timeline !== null && timeline.ended_at === null);
  if (timeline === null) return <p class="panel muted">The next turn is drawn here.</p>;
  const end = Math.max(timeline.ended_at ?? now, ...timeline.spans.map((span) => span.ended_at ?? 0));
  const total = Math.max(1, end - timeline.started_at);
  return (
    <div class="panel">
      <div class="panel-tools">
        <p class="timeline-head">
          {timeline.ended_at === null ? "Runs" : (timeline.status ?? "ended")} · {duration(total)}
          {timeline.cause && ` · ${causeText(timeline.cause)}`}
          {timeline.reason && <q>{timeline.reason}</q>}
        </p>
        <button type="button" onClick={() => save(timeline)}>
          <Icon name="download" /> Save as JSON
        </button>
      </div>
      <div class="panel-body" tabIndex={0} role="region" aria-label="Spans">
        <ol class="spans">
          {timeline.spans.map((span) => (
            <Row key={span.node_id} span={span} start={timeline.started_at} total={total} now={timeline.ended_at ?? now} />
          ))}
        </ol>
        {timeline.marks.length > 0 && (
          <>
            <h3>Events</h3>
            <ol class="marks">
              {timeline.marks.map((mark, index) => (
                <li key={index}>
                  <time>+{duration(mark.at - timeline.started_at)}</time> <span class="mark-type">{mark.type}</span> {mark.text}
                </li>
              ))}
            </ol>
          </>
        )}
      </div>
    </div>
  );
}

interface RowProps {
  span: Span;
  start: number;
  total: number;
  now: number;
}

function Row({ span, start, total, now }: RowProps) {
  const end = span.ended_at ?? now;
  const percent = (at: number): number => Math.min(100, Math.max(0, (100 * (at - start)) / total));
  const left = percent(span.started_at);
  const stop = span.stopping_at === null ? null : percent(span.stopping_at);
  const right = Math.max(percent(end), left + 0.8);
  const took = duration(end - span.started_at);
  const cleanUp = span.stopping_at === null ? null : duration(end - span.stopping_at);
  const what = SHOWN_AS_WAIT[span.kind] ?? span.kind.replaceAll("_", " ");
  const name = span.kind === "turn" ? "" : span.name;
  return (
    <li class="span" style={{ "--depth": String(span.depth) }}>
      <span class="span-label">
        <span class="span-name">
          {what} {name && <b>{name}</b>}
        </span>
        <span class="span-time">{took}</span>
      </span>
      <span class="track" aria-hidden="true">
        <span class={`bar ${span.kind}`} style={{ left: `${left}%`, width: `${(stop ?? right) - left}%` }} />
        {stop !== null && <span class="bar cleanup" style={{ left: `${stop}%`, width: `${Math.max(0.8, right - stop)}%` }} />}
      </span>
      {cleanUp !== null && (
        <span class="span-note">
          {causeText(span.cause ?? undefined) || "Stopped"}
          {span.reason && <q>{span.reason}</q>} · after {duration(span.stopping_at! - start)}, cleaned up in {cleanUp}
        </span>
      )}
    </li>
  );
}

function save(timeline: Timeline): void {
  const url = URL.createObjectURL(new Blob([exported(timeline)], { type: "application/json" }));
  const link = document.createElement("a");
  link.href = url;
  link.download = `timeline-${timeline.session}.json`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
