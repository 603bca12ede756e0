import type { ComponentChildren } from "preact";
import type { Job, Refusal } from "../api/client";
import { iso, moment } from "../format";

const SHAPES: Record<string, string> = {
  Running: "M2 6a4 4 0 1 0 8 0a4 4 0 1 0-8 0",
  Succeeded: "M1.5 6.5l3 3l6-7",
  Failed: "M2.5 2.5l7 7M9.5 2.5l-7 7",
  Stopped: "M2.5 2.5h7v7h-7z",
  Queued: "M6 2v4l3 2",
};

/** A job's state: colour, shape and word say the same. */
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

/** A moment in the viewer's zone; UTC is at hand below the pointer. */
export function Moment({ ms, short = false }: { ms: number | null | undefined; short?: boolean }) {
  if (ms === null || ms === undefined) return <span class="none">–</span>;
  return (
    <time dateTime={iso(ms)} title={iso(ms)}>
      {moment(ms, short)}
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

/** What went wrong, in the server's words, and a way to try again. */
export function Problem({ error, again }: { error: Refusal; again?: () => void }) {
  return (
    <div class="notice problem" role="alert">
      <strong>{error.message}</strong>
      {again && (
        <button type="button" onClick={again}>
          Try again
        </button>
      )}
    </div>
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

/** One of a few, as buttons in a row. */
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
