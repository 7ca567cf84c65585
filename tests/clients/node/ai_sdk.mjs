// The AI SDK through its openai-compatible provider: it holds every data line of a stream against a schema.
// node ai_sdk.mjs BASE_URL KEY
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, streamText } from "ai";

const [baseURL, apiKey] = process.argv.slice(2);
const provider = createOpenAICompatible({ name: "hermes", baseURL, apiKey, includeUsage: true });
const model = provider("hermes-agent");

const plain = await generateText({ model, prompt: "hello", maxRetries: 0 });
console.log(JSON.stringify({ name: "generate", text: plain.text, finish: plain.finishReason }));

const errors = [];
const stream = streamText({
  model,
  prompt: "use the tool",
  maxRetries: 0,
  onError: ({ error }) => errors.push(String(error)),
});
let text = "";
const types = new Set();
for await (const part of stream.fullStream) {
  types.add(part.type);
  if (part.type === "text-delta") text += part.text;
  if (part.type === "error") errors.push(String(part.error));
}
const usage = await stream.usage;
console.log(
  JSON.stringify({
    name: "stream",
    text,
    errors,
    finish: await stream.finishReason,
    reasoning: types.has("reasoning-delta"),
    usage: usage.totalTokens > 0,
  }),
);

const gone = new AbortController();
const left = streamText({ model, prompt: "hang", abortSignal: gone.signal, maxRetries: 0, onError() {} });
setTimeout(() => gone.abort(), 500);
let ended = "finished";
try {
  for await (const part of left.fullStream) if (part.type === "abort") ended = "aborted";
} catch (error) {
  ended = error.name;
}
console.log(JSON.stringify({ name: "abort", ended }));
