import type { Usage } from "../wire";
import { count } from "./parts";

export function Meter({ usage }: { usage: Usage }) {
  const used = usage.context_used ?? 0;
  const max = usage.context_max ?? 0;
  const percent = usage.context_percent ?? (max ? Math.min(100, Math.round((100 * used) / max)) : 0);
  const tokens = `${count(usage.input ?? 0)} in, ${count(usage.output ?? 0)} out, ${usage.calls ?? 0} calls`;
  const cost = usage.cost_usd === undefined ? "" : `, $${usage.cost_usd.toFixed(usage.cost_usd < 1 ? 4 : 2)}`;
  const context = max ? `${count(used)} of ${count(max)} tokens of context` : "context not known yet";
  return (
    <div class="meter" title={`${context}\n${tokens}${cost}`}>
      <meter min={0} max={100} value={percent} high={80} aria-label={`Context used: ${percent} percent; ${tokens}${cost}`} />
      <span aria-hidden="true">{percent}%</span>
    </div>
  );
}
