// The live tree of scopes: every node with its state, age and cause, and a button that stops it and what is below it.
import { useState } from "preact/hooks";
import { cancelNode } from "../actions";
import { causeText } from "../conversation";
import * as store from "../store";
import { sessionNode } from "../timeline";
import type { TreeNode } from "../wire";
import { Dialog, duration, useNow } from "./parts";

/** Stopping these reaches further than one may think: they are asked about first. */
const FAR_REACHING = new Set(["server", "sessions", "surface", "session"]);

export function TreePanel() {
  const [whole, setWhole] = useState(false);
  const [reason, setReason] = useState("");
  const [asked, setAsked] = useState<TreeNode | null>(null);
  const picture = store.tree.value;
  const open = store.conversation.value;
  const now = useNow(250);
  const root = picture === null ? null : whole ? picture.root : sessionNode(picture.root, open?.key ?? "");
  const stop = (node: TreeNode): void => {
    if (FAR_REACHING.has(node.kind)) setAsked(node);
    else void cancelNode(node.node_id, reason);
  };
  return (
    <div class="panel">
      <div class="panel-tools">
        <div class="tabs" role="group" aria-label="How much of the tree">
          <button type="button" aria-pressed={!whole} onClick={() => setWhole(false)}>
            This session
          </button>
          <button type="button" aria-pressed={whole} onClick={() => setWhole(true)}>
            Server
          </button>
        </div>
        <input
          type="text"
          maxLength={200}
          aria-label="Reason for what you stop here"
          placeholder="Reason for stopping (optional)"
          value={reason}
          onInput={(event) => setReason(event.currentTarget.value)}
        />
      </div>
      <div class="panel-body" tabIndex={0} role="region" aria-label="Nodes">
        {root === null ? (
          <p class="muted">Nothing runs here.</p>
        ) : (
          <ul class="tree">
            <Node node={root} since={now - (picture?.at ?? now)} stop={stop} />
          </ul>
        )}
      </div>
      {asked && (
        <Dialog title={`Stop the ${asked.kind}?`} role="alertdialog" onEscape={() => setAsked(null)}>
          <p>
            “{asked.name}” and everything below it ends{asked.kind === "server" || asked.kind === "surface" ? ", and with it this console" : ""}.
          </p>
          <div class="dialog-buttons">
            <button type="button" data-autofocus onClick={() => setAsked(null)}>
              Leave it
            </button>
            <button
              type="button"
              class="danger"
              onClick={() => {
                void cancelNode(asked.node_id, reason);
                setAsked(null);
              }}
            >
              Stop it
            </button>
          </div>
        </Dialog>
      )}
    </div>
  );
}

interface NodeProps {
  node: TreeNode;
  since: number;
  stop(node: TreeNode): void;
}

function Node({ node, since, stop }: NodeProps) {
  const stopping = node.state === "stopping";
  const deadline = node.deadline_in_s === undefined ? null : node.deadline_in_s * 1000 - since;
  return (
    <li>
      <div class={`node ${node.state}`} data-node={node.node_id} data-kind={node.kind}>
        <span class={`dot ${node.state}`} aria-hidden="true" />
        <span class="node-text">
          <span class="node-kind">{node.kind.replaceAll("_", " ")}</span> <span class="node-name">{shortName(node)}</span>
          <span class="node-facts">
            {node.state} · {duration(node.age_s * 1000 + since)}
            {deadline !== null && ` · ${deadline > 0 ? duration(deadline) : "no time"} left`}
            {node.pids && node.pids.length > 0 && ` · pid ${node.pids.join(", ")}`}
            {node.cause && <span class="node-cause"> · {causeText(node.cause)}</span>}
            {node.reason && <q>{node.reason}</q>}
          </span>
          <Details node={node} />
        </span>
        <button type="button" class="quiet stop-one" disabled={stopping} aria-label={`Stop ${node.kind} ${shortName(node)}`} onClick={() => stop(node)}>
          Stop
        </button>
      </div>
      {node.children.length > 0 && (
        <ul>
          {node.children.map((child) => (
            <Node key={child.node_id} node={child} since={since} stop={stop} />
          ))}
        </ul>
      )}
    </li>
  );
}

function shortName(node: TreeNode): string {
  if (node.kind === "turn") return node.node_id;
  return node.name === node.kind ? "" : node.name;
}

function Details({ node }: { node: TreeNode }) {
  const details = node.details ?? {};
  const args = details.arguments;
  const text =
    args !== null && typeof args === "object"
      ? Object.values(args).map((value) => (typeof value === "string" ? value : JSON.stringify(value))).join(" · ")
      : Object.entries(details)
          .filter(([name]) => name !== "session")
          .map(([name, value]) => `${name}: ${typeof value === "string" ? value : JSON.stringify(value)}`)
          .join(" · ");
  return text ? <span class="node-details">{text}</span> : null;
}
