import { fileURLToPath } from "node:url";
import { defineConfig, type Plugin } from "vite";
import { fingerprint, licences } from "./tools/sources.ts";

const root = fileURLToPath(new URL(".", import.meta.url));
const BUNDLED = ["preact", "@preact/signals", "@preact/signals-core", "marked"];

function records(): Plugin {
  return {
    name: "hermes-records",
    generateBundle() {
      const build = JSON.stringify({ sources: fingerprint(root) }, null, 2);
      this.emitFile({ type: "asset", fileName: "build.json", source: build + "\n" });
      this.emitFile({ type: "asset", fileName: "licences.txt", source: licences(root, BUNDLED) });
    },
  };
}

export default defineConfig({
  root,
  base: "./",
  publicDir: "public",
  plugins: [records()],
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    outDir: "../static",
    emptyOutDir: true,
    target: "es2022",
    modulePreload: false,
    // Everything is small and fetched from the same machine: one file each, with stable names.
    cssCodeSplit: false,
    assetsInlineLimit: 0,
    rollupOptions: {
      output: {
        entryFileNames: "console.js",
        chunkFileNames: "[name].js",
        assetFileNames: (asset) => (asset.names[0]?.endsWith(".css") ? "console.css" : "[name][extname]"),
      },
    },
  },
});
