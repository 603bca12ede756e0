// The filters that are set, each with a button that removes it.
import { ruleTitle } from "../catalog";
import { formatTime } from "../format";
import { go, href } from "../router";
import { FILTERS } from "./filters";

const NAMES: Record<string, string> = { q: "Name", state: "State", type: "Type", project: "Project", user: "User", group: "Group", node: "Node", tag: "Tag", finding: "Finding", severity: "Severity", since: "Created in the last", from: "Created from", to: "Created before" };

/** Describe a filter in words. */
export function describeFilter(name: string, value: string): string {
  if (name === "open") return "Open findings";
  if (name === "finding" && value !== "any") return `Finding: ${ruleTitle(value)}`;
  if ((name === "from" || name === "to") && Number(value)) return `${NAMES[name]} ${formatTime(Number(value))}`;
  return name === "since" ? `${NAMES[name]} ${value}` : `${NAMES[name]}: ${value}`;
}

/** Return the query without one value of a parameter. */
const withoutFilter = (query: URLSearchParams, name: string, value: string): URLSearchParams => new URLSearchParams([...query].filter(([own, one]) => own !== name || one !== value));

export function Chips({ query, set }: { query: URLSearchParams; set: (values: Record<string, string | null>) => void }) {
  const chosen = FILTERS.flatMap((name) => query.getAll(name).map((value) => [name, value] as const));
  if (!chosen.length) return null;
  return (
    <ul class="chips" aria-label="Filters that apply">
      {chosen.map(([name, value]) => (
        <li key={`${name} ${value}`}>
          <button type="button" aria-label={`Remove filter: ${describeFilter(name, value)}`} onClick={() => go(href([], withoutFilter(query, name, value)), true)}>
            {describeFilter(name, value)} <span aria-hidden="true">×</span>
          </button>
        </li>
      ))}
      <li>
        <button type="button" class="link" onClick={() => set(Object.fromEntries(FILTERS.map((name) => [name, null])))}>
          Clear all
        </button>
      </li>
    </ul>
  );
}
