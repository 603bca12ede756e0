import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { Job, Refusal } from "../api/client";
import { formatBriefTime, toIso, formatTime } from "../format";
import { useZone } from "./hooks";
import { useDialog } from "./keys";

const SHAPES: Record<string, string> = {
  Running: "M2 6a4 4 0 1 0 8 0a4 4 0 1 0-8 0",
  Succeeded: "M1.5 6.5l3 3l6-7",
  Failed: "M2.5 2.5l7 7M9.5 2.5l-7 7",
  Stopped: "M2.5 2.5h7v7h-7z",
  Queued: "M1.5 6a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0-9 0M6 3.4v2.9l1.9 1.1",
};

/** State of a job, by colour, shape and word. */
export function State({ state }: { state: Job["state"] }) {
  const shape = SHAPES[state] ?? "M2 6h8";
  return (
    <span class={`state state-${state.toLowerCase()}`}>
      <svg viewBox="0 0 12 12" aria-hidden="true">
        <path d={shape} />
      </svg>
      {state}
    </span>
  );
}

const MARKS: Record<string, string> = {
  critical: "M6 1.2L11 10.6H1z",
  warning: "M6 1.2L11 10.6H1z",
  info: "M2 6a4 4 0 1 0 8 0a4 4 0 1 0-8 0",
};

/** Severity mark before a finding: shape, colour and a hidden word for screen readers. */
export function Severity(given: { severity: string; passed?: boolean; title?: string; children?: ComponentChildren }) {
  return (
    <span class={`found ${given.severity}${given.passed ? " passed" : ""}`} title={given.title}>
      <svg viewBox="0 0 12 12" aria-hidden="true">
        <path d={MARKS[given.severity] ?? ""} />
      </svg>
      <span class="hidden">{given.severity}: </span>
      {given.children}
    </span>
  );
}

const MEASURE = /(\d[\d.,]* (?:%|°C|[KMGTP]?i?B(?:\/s)?|k?W|cores?|points|[dhms])(?!\w))/;

/** Text without line breaks between a number and its unit. */
export const Sentence = ({ text }: { text: string }) => (
  <span>
    {text.split(MEASURE).map((part, at) =>
      at % 2 ? (
        <span key={at} class="measure">
          {part}
        </span>
      ) : (
        part
      ),
    )}
  </span>
);

/** Time in the chosen zone, with UTC as its tooltip. */
export function Moment({ ms, short = false, brief = false }: { ms: number | null | undefined; short?: boolean; brief?: boolean }) {
  useZone();
  return renderTime(ms, brief ? "brief" : short ? "short" : "full");
}

/** Render a time in the current zone. The caller must render again when the zone changes. */
export function renderTime(ms: number | null | undefined, form: "brief" | "short" | "full") {
  if (ms === null || ms === undefined) return <span class="none">–</span>;
  return (
    <time dateTime={toIso(ms)} title={toIso(ms)}>
      {form === "brief" ? formatBriefTime(ms) : formatTime(ms, form === "short")}
    </time>
  );
}

export function Notice({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="notice">
      <strong>{title}</strong>
      {children && <div>{children}</div>}
    </div>
  );
}

/** Return advice for an error whose message does not say what to do. */
function adviceFor(error: Refusal): string {
  const soon = error.wait === null ? "" : ` This page tries again in ${error.wait} s.`;
  if (error.status === 0) return "Check that the server runs and that the network works. This page tries again every few seconds.";
  if (error.status === 403) return "Your key has no permission for this. Sign in with another key, or ask an administrator for one.";
  if (error.status === 429) return `This key sent too many requests at once.${soon}`;
  if (error.status >= 500) return `The server could not answer.${soon || " If this persists, see the server's log."}`;
  return "";
}

/** Error message with advice and a button to try again. */
export function Problem({ error, reload }: { error: Refusal; reload?: () => void }) {
  const advice = adviceFor(error);
  return (
    <div class="notice problem" role="alert">
      <strong>{toSentence(error.message)}</strong>
      {advice && <p>{advice}</p>}
      {reload && (
        <button type="button" onClick={reload}>
          Try again
        </button>
      )}
    </div>
  );
}

/** Turn a message into a sentence with a capital letter and a full stop. */
const toSentence = (text: string): string => `${text.charAt(0).toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? "" : "."}`;

/** Copy a text to the clipboard. Returns false if the browser refuses. */
async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Without HTTPS there is no clipboard API. Outside of an open dialog nothing can be selected.
    const field = document.createElement("textarea");
    field.value = text;
    (document.querySelector("dialog[open]") ?? document.body).append(field);
    field.select();
    const copied = document.execCommand("copy");
    field.remove();
    return copied;
  }
}

/** Button that copies a text, for example a token. */
export function CopyButton({ text, word = "Copy", name }: { text: string; word?: string; name?: string }) {
  const [copied, setCopied] = useState(false);
  useEffect(() => setCopied(false), [text]);
  const label = copied ? "Copied" : word;
  return (
    <button type="button" aria-label={name && `${label}: ${name}`} onClick={() => void copyText(text).then(setCopied)}>
      {label}
    </button>
  );
}

/** Dialog with a title and a close button. */
export function Dialog({ title, close, children }: { title: string; close: () => void; children: ComponentChildren }) {
  const dialog = useDialog(close);
  return (
    <dialog class="sheet" aria-label={title} {...dialog}>
      <header class="section">
        <h2>{title}</h2>
        <button type="button" onClick={close}>
          Close
        </button>
      </header>
      {children}
    </dialog>
  );
}

export function Section(given: { id: string; title: string; kind?: string; aside?: ComponentChildren; children: ComponentChildren }) {
  return (
    <section aria-labelledby={`${given.id}-title`} id={given.id} class={given.kind}>
      <header class="section">
        <h2 id={`${given.id}-title`}>{given.title}</h2>
        <div class="aside">{given.aside}</div>
      </header>
      {given.children}
    </section>
  );
}

/** Row of buttons, exactly one of them pressed. */
export function Choice<T extends string>(given: {
  label: string;
  value: T;
  options: readonly (readonly [T, string])[];
  choose: (value: T) => void;
}) {
  return (
    <div class="choice" role="group" aria-label={given.label}>
      {given.options.map(([value, text]) => (
        <button type="button" key={value} aria-pressed={value === given.value} onClick={() => given.choose(value)}>
          {text}
        </button>
      ))}
    </div>
  );
}
