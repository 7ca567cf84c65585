// The official openai package against a running server. One line of JSON per scenario: its name and what came of it.
// node sdk.mjs BASE_URL KEY
import OpenAI from "openai";

const [baseURL, apiKey] = process.argv.slice(2);
const client = new OpenAI({ apiKey, baseURL, maxRetries: 0, timeout: 30_000 });
const PICTURE =
  "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const ask = (content) => [{ role: "user", content }];

const scenarios = {
  async models() {
    const ids = [];
    for await (const model of client.models.list()) ids.push(model.id);
    return { ids, one: (await client.models.retrieve("hermes-agent")).id };
  },
  async chat() {
    const { data, response } = await client.chat.completions
      .create({ model: "hermes-agent", messages: ask("hello") })
      .withResponse();
    const { choices, usage, object } = data;
    return {
      object,
      text: choices[0].message.content,
      finish: choices[0].finish_reason,
      adds_up: usage.total_tokens === usage.prompt_tokens + usage.completion_tokens && usage.prompt_tokens > 0,
      session: Boolean(response.headers.get("x-hermes-session-id")),
    };
  },
  async chat_stream() {
    const stream = await client.chat.completions.create({
      model: "hermes-agent",
      messages: ask("hello"),
      stream: true,
      stream_options: { include_usage: true },
    });
    let text = "";
    let usage = null;
    const roles = [];
    const ends = [];
    for await (const chunk of stream) {
      if (chunk.usage) usage = chunk.usage;
      const choice = chunk.choices?.[0];
      if (choice?.delta.role) roles.push(choice.delta.role);
      if (choice?.finish_reason) ends.push(choice.finish_reason);
      text += choice?.delta.content ?? "";
    }
    return { text, roles, ends, usage: usage !== null && usage.total_tokens > 0 };
  },
  async chat_helper() {
    const stream = client.chat.completions.stream({ model: "hermes-agent", messages: ask("hello") });
    let events = 0;
    stream.on("content", () => events++);
    const final = await stream.finalChatCompletion();
    return { text: final.choices[0].message.content, events: events > 0 };
  },
  async tools_are_shown() {
    const stream = await client.chat.completions.create({
      model: "hermes-agent",
      messages: ask("use the tool"),
      stream: true,
    });
    let text = "";
    const ends = [];
    for await (const chunk of stream) {
      text += chunk.choices?.[0]?.delta.content ?? "";
      if (chunk.choices?.[0]?.finish_reason) ends.push(chunk.choices[0].finish_reason);
    }
    const response = await client.responses.create({ model: "hermes-agent", input: "use the tool" });
    return { text, ends, items: response.output.map((item) => item.type), said: response.output_text };
  },
  async image() {
    const content = [
      { type: "text", text: "what is this?" },
      { type: "image_url", image_url: { url: PICTURE } },
    ];
    const answer = await client.chat.completions.create({ model: "hermes-agent", messages: ask(content) });
    return { text: answer.choices[0].message.content };
  },
  async responses() {
    const first = await client.responses.create({ model: "hermes-agent", input: "hello" });
    const second = await client.responses.create({
      model: "hermes-agent",
      input: "hello",
      previous_response_id: first.id,
    });
    const stored = await client.responses.retrieve(first.id);
    await client.responses.delete(first.id);
    const gone = await client.responses.retrieve(first.id).catch((error) => error);
    return {
      status: first.status,
      text: first.output_text,
      chained: second.previous_response_id === first.id,
      same: stored.output_text === first.output_text,
      gone: gone instanceof OpenAI.NotFoundError,
    };
  },
  async responses_stream() {
    const stream = client.responses.stream({ model: "hermes-agent", input: "hello" });
    const types = new Set();
    let deltas = "";
    for await (const event of stream) {
      types.add(event.type);
      if (event.type === "response.output_text.delta") deltas += event.delta;
    }
    const final = await stream.finalResponse();
    return { text: final.output_text, deltas, types: [...types] };
  },
  async errors() {
    const stranger = new OpenAI({ apiKey: "wrong", baseURL, maxRetries: 0 });
    const name = (error) => [error.constructor.name, error.status ?? null, error.code ?? null];
    const caught = async (call) => name(await call().catch((error) => error));
    return {
      key: await caught(() => stranger.models.list()),
      model: await caught(() => client.models.retrieve("ghost")),
      empty: await caught(() => client.chat.completions.create({ model: "x", messages: [] })),
      response: await caught(() => client.responses.retrieve("resp_none")),
      endpoint: await caught(() => client.embeddings.create({ model: "x", input: "x" })),
      failed: await caught(() => client.chat.completions.create({ model: "x", messages: ask("fail") })),
      failed_stream: await caught(async () => {
        const stream = await client.chat.completions.create({ model: "x", messages: ask("fail"), stream: true });
        for await (const _ of stream);
      }),
      failed_response: await caught(async () => {
        const stream = client.responses.stream({ model: "x", input: "fail" });
        for await (const _ of stream);
        const final = await stream.finalResponse();
        if (final.status === "failed") throw Object.assign(new OpenAI.APIError(), { code: final.error.code });
      }),
    };
  },
  async timeout() {
    const hasty = new OpenAI({ apiKey, baseURL, maxRetries: 0, timeout: 700 });
    const error = await hasty.chat.completions.create({ model: "x", messages: ask("hang") }).catch((error) => error);
    return { kind: error.constructor.name };
  },
  async abort() {
    const stream = await client.chat.completions.create({ model: "x", messages: ask("hang"), stream: true });
    let id = null;
    for await (const chunk of stream) {
      id = chunk.id;
      stream.controller.abort();
    }
    for (let tries = 0; tries < 200; tries++) {
      const status = await client.get(`/runs/${id}`);
      if (status.status === "cancelled") return { status: status.status, cause: status.cause };
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    return { status: "still running" };
  },
};

for (const [name, run] of Object.entries(scenarios)) {
  let outcome;
  try {
    outcome = { name, result: await run() };
  } catch (error) {
    outcome = { name, error: `${error.constructor.name}: ${error.message}` };
  }
  console.log(JSON.stringify(outcome));
}
