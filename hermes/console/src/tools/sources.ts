// The fingerprint of what the console is built from. tests/console/test_console_files.py computes the same one, so that
// built files that are older than their sources are noticed.
import { createHash } from "node:crypto";
import { readFileSync, readdirSync } from "node:fs";
import { join, relative, sep } from "node:path";

const LEFT_OUT = new Set(["node_modules"]);

function filesBelow(folder: string): string[] {
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    if (LEFT_OUT.has(entry.name)) return [];
    const path = join(folder, entry.name);
    return entry.isDirectory() ? filesBelow(path) : [path];
  });
}

export function fingerprint(root: string): string {
  const hash = createHash("sha256");
  const names = filesBelow(root).map((path) => relative(root, path).split(sep).join("/"));
  for (const name of names.sort()) {
    hash.update(name).update("\0").update(readFileSync(join(root, name))).update("\0");
  }
  return hash.digest("hex");
}

export function licences(root: string, packages: string[]): string {
  return packages
    .map((name) => {
      const folder = join(root, "node_modules", name);
      const { version } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8")) as { version: string };
      const file = readdirSync(folder).find((entry) => /^licen[cs]e/i.test(entry));
      const text = file === undefined ? "" : readFileSync(join(folder, file), "utf8").trim();
      return `${name} ${version}\n\n${text}\n`;
    })
    .join("\n" + "-".repeat(80) + "\n\n");
}
