import * as store from "../store";
import { IconButton } from "./parts";
import { TimelinePanel } from "./timeline_panel";
import { TreePanel } from "./tree_panel";

export function Side() {
  const panel = store.panel.value;
  return (
    <aside class="side" aria-label={panel === "tree" ? "Live tree" : "Timeline"}>
      <div class="side-head">
        <div class="tabs" role="group" aria-label="Panel">
          <button type="button" aria-pressed={panel === "tree"} onClick={() => (store.panel.value = "tree")}>
            Tree
          </button>
          <button type="button" aria-pressed={panel === "timeline"} onClick={() => (store.panel.value = "timeline")}>
            Timeline
          </button>
        </div>
        <IconButton icon="close" label="Close the panel" onClick={() => (store.panel.value = null)} />
      </div>
      {panel === "tree" ? <TreePanel /> : <TimelinePanel />}
    </aside>
  );
}
