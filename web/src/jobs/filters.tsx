import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { type Job, type Schemas, address } from "../api/client";
import { ruleTitle } from "../catalog";
import { useRead } from "../parts/hooks";

export const FILTERS = ["q", "state", "type", "project", "user", "group", "node", "tag", "finding", "severity", "open", "since", "from", "to"] as const;
const STATES = ["Running", "Queued", "Succeeded", "Failed", "Stopped", "Unknown"] as const;
const TEXTS: readonly (readonly [string, string, keyof Job | null])[] = [
  ["type", "Type", "type"],
  ["project", "Project", "project"],
  ["user", "User", "user"],
  ["group", "Resource group", "resource_group"],
  ["node", "Node", null],
  ["tag", "Tag", null],
];

/** Search box and filters of the list. Their values are in the address. */
export function Filters(given: {
  query: URLSearchParams;
  set: (values: Record<string, string | null>) => void;
  loaded: readonly Job[];
  states: Readonly<Record<string, number>> | null;
  children?: ComponentChildren;
}) {
  const { query, set, loaded, states } = given;
  const search = useRef<HTMLInputElement>(null);
  const chosen = FILTERS.filter((name) => name !== "q" && name !== "state" && query.has(name)).length;
  const [open, setOpen] = useState(false);
  useEffect(() => {
    const slash = (event: KeyboardEvent) => {
      const busy = (event.target as HTMLElement).closest("input, textarea, select");
      if (event.key !== "/" || busy || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      search.current?.focus();
    };
    addEventListener("keydown", slash);
    return () => removeEventListener("keydown", slash);
  }, []);
  const state = query.get("state") ?? "";
  return (
    <form class="filters" role="search" onSubmit={(event) => event.preventDefault()}>
      <div class="first">
        <DebouncedInput label="Search by name or id" value={query.get("q") ?? ""} change={(value) => set({ q: value })} input={search} />
        <div class="choice states" role="group" aria-label="State">
          <button type="button" aria-pressed={!state} onClick={() => set({ state: null })}>
            All
          </button>
          {STATES.map((one) => (
            <button type="button" key={one} aria-pressed={state === one} onClick={() => set({ state: state === one ? null : one })}>
              {one}
              {states && <small> {(states[one] ?? 0).toLocaleString("en")}</small>}
            </button>
          ))}
        </div>
        <button type="button" aria-expanded={open} onClick={() => setOpen(!open)}>
          Filters{chosen ? ` (${chosen})` : ""}
        </button>
        {given.children}
      </div>
      {open && (
        <div class="more">
          {TEXTS.map(([name, text, field]) => (
            <label key={name}>
              {text}
              <DebouncedInput label={text} value={query.get(name) ?? ""} change={(value) => set({ [name]: value })} list={`list-${name}`} />
              <datalist id={`list-${name}`}>
                {field && [...new Set(loaded.map((job) => String(job[field] ?? "")))].filter(Boolean).map((one) => <option key={one} value={one} />)}
              </datalist>
            </label>
          ))}
          <Found query={query} set={set} />
          <label>
            Created
            <select value={query.get("since") ?? ""} onChange={(event) => set({ since: event.currentTarget.value })}>
              <option value="">at any time</option>
              <option value="1h">in the last hour</option>
              <option value="24h">in the last day</option>
              <option value="7d">in the last week</option>
              <option value="30d">in the last month</option>
            </select>
          </label>
        </div>
      )}
    </form>
  );
}

/** Filters by rule and severity. The server applies them, so that counts and pages are complete. */
function Found({ query, set }: { query: URLSearchParams; set: (values: Record<string, string | null>) => void }) {
  const response = useRead<Schemas["RuleList"]>(address("/api/jobmeter/v1/rules"));
  const [rule, severity] = [query.get("finding") ?? "", query.get("severity") ?? ""];
  return (
    <>
      <label>
        Finding
        <select value={rule} title="Only jobs that ran while this server was running have findings" onChange={(event) => set({ finding: event.currentTarget.value })}>
          <option value="">with or without</option>
          <option value="any">any finding</option>
          {rule && rule !== "any" && !response.data && <option value={rule}>{ruleTitle(rule)}</option>}
          {response.data?.rules.map((one) => (
            <option key={one.name} value={one.name}>
              {one.title}
            </option>
          ))}
        </select>
      </label>
      <label>
        Severity
        <select value={severity} onChange={(event) => set({ severity: event.currentTarget.value })}>
          <option value="">any</option>
          <option value="critical">critical</option>
          <option value="warning">warning</option>
          <option value="info">info</option>
        </select>
      </label>
      <label class="box">
        <input type="checkbox" checked={query.has("open")} onChange={(event) => set({ open: event.currentTarget.checked ? "true" : null })} />
        Open now
      </label>
    </>
  );
}

/** Text field that reports its value once typing pauses. */
function DebouncedInput(given: {
  label: string;
  value: string;
  change: (value: string) => void;
  input?: { current: HTMLInputElement | null };
  list?: string;
}) {
  const timer = useRef(0);
  const [text, setText] = useState(given.value);
  const latest = useRef(given.change);
  latest.current = given.change;
  useEffect(() => () => clearTimeout(timer.current), []);
  useEffect(() => setText((now) => (now.trim() === given.value ? now : given.value)), [given.value]);
  const typed = (value: string) => {
    setText(value);
    clearTimeout(timer.current);
    timer.current = window.setTimeout(() => latest.current(value.trim()), 180);
  };
  return (
    <input
      type="search"
      ref={given.input}
      aria-label={given.label}
      placeholder={given.list ? "" : `${given.label}  ( / )`}
      value={text}
      list={given.list}
      autocomplete="off"
      spellcheck={false}
      onInput={(event) => typed(event.currentTarget.value)}
    />
  );
}
