// A unified diff. It comes coloured for a terminal; the colours are taken off and given again by the line's first sign.
const COLOURS = /\u001b\[[0-9;]*m/g;

function kind(line: string): string {
  if (line.startsWith("+++") || line.startsWith("---")) return "file";
  if (line.startsWith("@@")) return "hunk";
  if (line.startsWith("+")) return "added";
  if (line.startsWith("-")) return "removed";
  return "same";
}

export function Diff({ text }: { text: string }) {
  const lines = text.replace(COLOURS, "").trimEnd().split("\n");
  return (
    <pre class="diff" tabIndex={0} role="region" aria-label="Changes">
      {lines.map((line, index) => (
        <span key={index} class={kind(line)}>
          {line || " "}
          {"\n"}
        </span>
      ))}
    </pre>
  );
}
