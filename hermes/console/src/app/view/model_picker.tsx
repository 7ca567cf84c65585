import { useEffect, useRef, useState } from "preact/hooks";
import { setModel } from "../actions";
import { attempt } from "../gateway";
import * as store from "../store";
import { Dialog } from "./parts";

interface Provider {
  slug: string;
  name: string;
  models: string[];
  is_current: boolean;
  authenticated?: boolean;
  warning?: string;
}

export function ModelPicker() {
  const [open, setOpen] = useState(false);
  const info = store.conversation.value?.info;
  const name = info?.model || "default model";
  return (
    <>
      <button type="button" class="model" aria-haspopup="dialog" title={`Model: ${name}`} onClick={() => setOpen(true)}>
        <span class="visually-hidden">Model: </span>
        {name}
      </button>
      {open && <Picker current={info?.model ?? ""} close={() => setOpen(false)} />}
    </>
  );
}

function Picker({ current, close }: { current: string; close(): void }) {
  const [providers, setProviders] = useState<Provider[] | null>(null);
  const [filter, setFilter] = useState("");
  const [question, setQuestion] = useState<{ model: string; provider: string; text: string } | null>(null);
  const asked = useRef(false);
  const ask = async (refresh: boolean): Promise<void> => {
    const sessionId = store.conversation.value?.id;
    const result = await attempt("model.options", { session_id: sessionId, ...(refresh ? { refresh: true } : {}) });
    setProviders(result?.providers ?? []);
  };
  useEffect(() => {
    if (!asked.current) void ask(false);
    asked.current = true;
  }, []);
  const choose = async (model: string, provider: string, confirmed = false): Promise<void> => {
    const text = await setModel(model, provider, confirmed);
    if (text === null) close();
    else setQuestion({ model, provider, text });
  };
  const wanted = filter.trim().toLowerCase();
  const shown = (providers ?? [])
    .map((provider) => ({ ...provider, models: provider.models.filter((model) => model.toLowerCase().includes(wanted)).slice(0, 60) }))
    .filter((provider) => provider.models.length > 0);
  return (
    <Dialog title="Model" onEscape={close} class="picker">
      {question ? (
        <>
          <p>{question.text}</p>
          <div class="dialog-buttons">
            <button type="button" onClick={() => setQuestion(null)}>
              Back
            </button>
            <button type="button" class="primary" onClick={() => void choose(question.model, question.provider, true)}>
              Use it anyway
            </button>
          </div>
        </>
      ) : (
        <>
          <form
            class="row"
            onSubmit={(event) => {
              event.preventDefault();
              const only = shown.length === 1 && shown[0]?.models.length === 1 ? shown[0] : null;
              if (only) void choose(only.models[0]!, only.slug);
              else if (filter.trim()) void choose(filter.trim(), "");
            }}
          >
            <input
              data-autofocus
              type="text"
              aria-label="Find or name a model"
              placeholder="Find or name a model"
              value={filter}
              onInput={(event) => setFilter(event.currentTarget.value)}
            />
            <button type="submit" disabled={!filter.trim()}>
              Use
            </button>
          </form>
          <div class="picker-list" tabIndex={0} role="group" aria-label="Models">
            {providers === null && <p class="muted">Asking…</p>}
            {providers !== null && shown.length === 0 && <p class="muted">No model in the list; you can name one.</p>}
            {shown.map((provider) => (
              <section key={provider.slug} aria-label={provider.name}>
                <h3>{provider.name}</h3>
                {provider.warning && <p class="muted small">{provider.warning}</p>}
                <ul>
                  {provider.models.map((model) => {
                    const chosen = model === current && provider.is_current;
                    return (
                      <li key={model}>
                        <button type="button" aria-current={chosen ? "true" : undefined} onClick={() => void choose(model, provider.slug)}>
                          {model}
                        </button>
                      </li>
                    );
                  })}
                </ul>
              </section>
            ))}
          </div>
          <div class="dialog-buttons">
            <button type="button" onClick={() => void ask(true)}>
              Ask the providers again
            </button>
            <button type="button" onClick={close}>
              Close
            </button>
          </div>
        </>
      )}
    </Dialog>
  );
}
