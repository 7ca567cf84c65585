import { useState } from "preact/hooks";
import { logIn } from "../actions";
import * as store from "../store";

export function Login() {
  const [typed, setTyped] = useState("");
  const busy = store.key.value !== null && ["connecting", "open"].includes(store.connection.value);
  const error = store.loginError.value;
  const submit = (event: Event): void => {
    event.preventDefault();
    if (typed.trim()) logIn(typed.trim());
  };
  return (
    <main class="login">
      <form class="login-box" onSubmit={submit}>
        <img src={"icon.svg"} alt="" width="48" height="48" />
        <h1>Hermes</h1>
        <p class="muted">
          The server printed where its key is when it started, usually <code>~/.hermes/server.key</code>.
        </p>
        <label for="key">Key</label>
        <input
          id="key"
          type="password"
          autocomplete="off"
          spellcheck={false}
          autofocus
          value={typed}
          aria-invalid={error !== null}
          aria-describedby={error !== null ? "key-error" : undefined}
          onInput={(event) => setTyped(event.currentTarget.value)}
        />
        {error !== null && (
          <p id="key-error" class="error-text" role="alert">
            {error}
          </p>
        )}
        <button type="submit" class="primary" disabled={busy || !typed.trim()}>
          {busy ? "Connecting…" : "Open the console"}
        </button>
        <p class="muted small">The key stays in this tab and is forgotten when you close it.</p>
      </form>
    </main>
  );
}
