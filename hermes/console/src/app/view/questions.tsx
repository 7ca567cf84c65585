// What the agent asks: one dialog at a time, in the order in which it was asked. A question that is withdrawn takes its
// dialog with it.
import { useState } from "preact/hooks";
import { answerRequest, stop } from "../actions";
import { attempt } from "../gateway";
import * as store from "../store";
import type { OpenRequest } from "../wire";
import { Dialog } from "./parts";

export function Questions() {
  const request = store.questions.value[0];
  if (request === undefined) return null;
  switch (request.method) {
    case "approval":
      return <Approval key={request.id} request={request} />;
    case "clarify":
      return <Clarify key={request.id} request={request} />;
    default:
      return <Secret key={request.id} request={request} />;
  }
}

const CHOICES: Record<string, string> = {
  once: "Allow once",
  session: "Allow for the session",
  always: "Always allow",
  deny: "Deny",
};

function choicesOf(params: any): string[] {
  if (Array.isArray(params.choices) && params.choices.length) return params.choices;
  return ["once", ...(params.allow_session ? ["session"] : []), ...(params.allow_permanent ? ["always"] : []), "deny"];
}

// More than the box shows on a phone, where nothing else tells that there is more.
function isLong(command: string): boolean {
  return command.length > 240 || command.split("\n").length > 8;
}

function lengthOf(command: string): string {
  const lines = command.split("\n").length;
  return lines > 1 ? `${lines} lines` : `${command.length} characters`;
}

function Approval({ request }: { request: OpenRequest }) {
  const { params } = request;
  const waiting = store.questions.value.filter((one) => one.method === "approval").length;
  const [every, setEvery] = useState(false);
  const choose = (choice: string): boolean => answerRequest(request.id, every ? { choice, all: true } : { choice });
  const choices = choicesOf(params);
  return (
    <Dialog title="May this run?" role="alertdialog" onEscape={() => choose("deny")}>
      {params.description && <p>{params.description}</p>}
      {params.command && isLong(params.command) && (
        <p class="notice">It is long ({lengthOf(params.command)}): scroll to its end before you allow it.</p>
      )}
      {params.command && (
        <pre class="command" tabIndex={0} role="region" aria-label="Command">
          {params.command}
        </pre>
      )}
      {params.smart_denied && <p class="notice warning">The automatic reviewer advised against it.</p>}
      {waiting > 1 && (
        <label class="check">
          <input type="checkbox" checked={every} onChange={(event) => setEvery(event.currentTarget.checked)} />
          The same answer for all {waiting} that wait
        </label>
      )}
      <div class="dialog-buttons spread">
        <button type="button" class="danger" data-autofocus onClick={() => choose("deny")}>
          {CHOICES.deny}
        </button>
        <span class="row">
          {choices
            .filter((choice) => choice !== "deny")
            .reverse()
            .map((choice) => (
              <button key={choice} type="button" class={choice === "once" ? "primary" : ""} onClick={() => choose(choice)}>
                {CHOICES[choice] ?? choice}
              </button>
            ))}
        </span>
      </div>
      <StopInstead />
    </Dialog>
  );
}

interface ClarifyQuestion {
  qid: string;
  question: string;
  choices?: string[];
  multi_select?: boolean;
}

interface Given {
  picked: string[];
  text: string;
  locked: boolean;
}

function Clarify({ request }: { request: OpenRequest }) {
  const asked: ClarifyQuestion[] = request.params.questions ?? [];
  const [given, setGiven] = useState<Record<string, Given>>(() => lockedBefore(asked, request.params.answers ?? {}));
  const of = (qid: string): Given => given[qid] ?? { picked: [], text: "", locked: false };
  const change = (qid: string, next: Partial<Given>): void => setGiven((all) => ({ ...all, [qid]: { ...of(qid), ...next } }));
  const submit = (): void => {
    const answers: Record<string, string | null> = {};
    for (const question of asked) {
      const answer = of(question.qid);
      if (!answer.locked) answers[question.qid] = answerOf(question, answer);
    }
    answerRequest(request.id, { answers });
  };
  const lock = async (question: ClarifyQuestion): Promise<void> => {
    const answer = answerOf(question, of(question.qid));
    const result = await attempt("clarify.lock", { request_id: request.id, question_id: question.qid, answer });
    if (result?.status === "ok") change(question.qid, { locked: true });
  };
  return (
    <Dialog title={asked.length > 1 ? "A few questions" : "A question"} onEscape={() => answerRequest(request.id, {})}>
      <form
        class="clarify"
        onSubmit={(event) => {
          event.preventDefault();
          submit();
        }}
        onKeyDown={(event) => {
          if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
            event.preventDefault();
            submit();
          }
        }}
      >
        {asked.map((question) => (
          <QuestionFields
            key={question.qid}
            question={question}
            given={of(question.qid)}
            change={(next) => change(question.qid, next)}
            lock={asked.length > 1 ? () => void lock(question) : undefined}
          />
        ))}
        <div class="dialog-buttons spread">
          <button type="button" onClick={() => answerRequest(request.id, {})}>
            Do not answer
          </button>
          <button type="submit" class="primary">
            Answer
          </button>
        </div>
      </form>
      <StopInstead />
    </Dialog>
  );
}

function lockedBefore(asked: ClarifyQuestion[], answers: Record<string, string | null>): Record<string, Given> {
  const entries = asked
    .filter((question) => question.qid in answers)
    .map((question) => [question.qid, { picked: [], text: answers[question.qid] ?? "", locked: true }]);
  return Object.fromEntries(entries);
}

/** Null skips the question; several picks travel as a JSON list. */
function answerOf(question: ClarifyQuestion, given: Given): string | null {
  const text = given.text.trim();
  if (question.multi_select) {
    const all = text ? [...given.picked, text] : given.picked;
    return all.length ? JSON.stringify(all) : null;
  }
  return text || given.picked[0] || null;
}

interface FieldsProps {
  question: ClarifyQuestion;
  given: Given;
  change(next: Partial<Given>): void;
  lock?(): void;
}

function QuestionFields({ question, given, change, lock }: FieldsProps) {
  const name = `answer-${question.qid}`;
  const choices = question.choices ?? [];
  const pick = (choice: string, on: boolean): void => {
    if (!question.multi_select) change({ picked: [choice], text: "" });
    else change({ picked: on ? [...given.picked, choice] : given.picked.filter((one) => one !== choice) });
  };
  return (
    <fieldset disabled={given.locked}>
      <legend>{question.question}</legend>
      {choices.map((choice) => (
        <label key={choice} class="check">
          <input
            type={question.multi_select ? "checkbox" : "radio"}
            name={name}
            checked={given.picked.includes(choice)}
            onChange={(event) => pick(choice, event.currentTarget.checked)}
          />
          {choice}
        </label>
      ))}
      <div class="row">
        <input
          type="text"
          aria-label={choices.length ? `Another answer to: ${question.question}` : `Answer to: ${question.question}`}
          placeholder={choices.length ? "Something else" : "Your answer"}
          value={given.text}
          onInput={(event) => change({ text: event.currentTarget.value, ...(question.multi_select ? {} : { picked: [] }) })}
        />
        {lock && (
          <button type="button" onClick={lock}>
            {given.locked ? "Kept" : "Keep"}
          </button>
        )}
      </div>
    </fieldset>
  );
}

function Secret({ request }: { request: OpenRequest }) {
  const [value, setValue] = useState("");
  const { params } = request;
  const isSudo = request.method === "sudo";
  const skip = (): boolean => answerRequest(request.id, { value: "" });
  return (
    <Dialog title={isSudo ? "Password for sudo" : "A secret is needed"} onEscape={skip}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          answerRequest(request.id, { value });
        }}
      >
        {params.prompt && <p>{params.prompt}</p>}
        {params.command && <pre class="command">{params.command}</pre>}
        <label for="secret">{params.env_var ?? "Password"}</label>
        <input
          id="secret"
          data-autofocus
          type="password"
          autocomplete="off"
          value={value}
          onInput={(event) => setValue(event.currentTarget.value)}
        />
        <p class="muted small">The model does not see it.</p>
        <div class="dialog-buttons spread">
          <button type="button" onClick={skip}>
            Skip
          </button>
          <button type="submit" class="primary" disabled={!value}>
            Give it
          </button>
        </div>
      </form>
      <StopInstead />
    </Dialog>
  );
}

function StopInstead() {
  return (
    <p class="small stop-instead">
      <button type="button" class="quiet" onClick={() => void stop()}>
        Stop the turn instead
      </button>
    </p>
  );
}
