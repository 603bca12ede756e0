import { go, href } from "../router";

/** Maximum number of jobs in one comparison, the limit of the API. */
export const MOST_COMPARED = 10;

/** Bar with the number of selected jobs and a link to their comparison. */
export function Picked({ keys, clear }: { keys: readonly string[]; clear: () => void }) {
  const compare = () => {
    const parts = keys.map((key) => key.split("/", 2) as [string, string]);
    const projects = new Set(parts.map(([project]) => project));
    const query = new URLSearchParams(keys.map((key) => ["job", key.slice(key.indexOf("/") + 1)]));
    if (projects.size === 1) query.set("project", parts[0]![0]);
    go(href(["compare"], query));
  };
  return (
    <div class="picked" role="region" aria-label="Jobs to compare">
      <b>{keys.length}</b> {keys.length === 1 ? "job selected. Select another one to compare." : "jobs selected"}
      <button type="button" class="primary" disabled={keys.length < 2} onClick={compare}>
        Compare
      </button>
      <button type="button" onClick={clear}>
        Clear
      </button>
    </div>
  );
}
