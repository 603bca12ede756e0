// Command palette: find a job, node, user, saved view or page by a few letters.
import { useEffect, useMemo, useState } from "preact/hooks";
import { type Job, type Node, type Schemas, address, read } from "../api/client";
import { ownUser, savedViews } from "../jobs/saved";
import { viewAddress } from "../jobs/views";
import { go, href, jobHref, nodeHref } from "../router";
import { useDebounced } from "./hooks";
import { useDialog } from "./keys";

interface Target {
  kind: string;
  text: string;
  more: string;
  to: string;
}

const PAGES: readonly Target[] = (
  [
    ["Jobs", "#/"],
    ["Findings", "#/findings"],
    ["Nodes", "#/nodes"],
    ["Nodes with faults", "#/nodes?show=faults"],
    ["Utilization", "#/use"],
    ["Keys", "#/admin/keys"],
    ["API usage", "#/admin/usage"],
    ["Retention", "#/admin/retention"],
    ["Log shippers", "#/admin/shippers"],
  ] as const
).map(([text, to]) => ({ kind: "Page", text, more: "", to }));
/** Maximum number of results of each kind, and number of jobs whose users are known. */
const [MOST, KNOWN] = [6, 200];
const REST = 120;

const jobs = (query: Record<string, string | number>, signal: AbortSignal) => read<Schemas["JobList"]>(address("/api/jobmeter/v1/jobs", {}, { sort: "active", ...query }), signal);

const ofJob = (job: Job): Target => ({ kind: "Job", text: job.name || job.id, more: [job.name && job.id, job.state, job.user].filter(Boolean).join(" · "), to: jobHref(job) });
const ofNode = (node: Node): Target => ({ kind: "Node", text: node.name, more: [node.resource_group, node.cluster].filter(Boolean).join(" · "), to: nodeHref(node.name, node.cluster) });
const ofUser = (user: string): Target => ({ kind: "User", text: user, more: "jobs", to: href([], { user }) });

export function Palette({ close }: { close: () => void }) {
  const dialog = useDialog(close);
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const [known, setKnown] = useState<readonly Target[]>([]);
  const [found, setFound] = useState<readonly Target[]>([]);
  const wanted = useDebounced(text.trim(), REST);
  useEffect(() => {
    // Failed requests are ignored: the other results are still useful.
    const gone = new AbortController();
    const add = (more: readonly Target[]) => setKnown((now) => [...now, ...more]);
    read<Schemas["NodeList"]>(address("/api/jobmeter/v1/nodes"), gone.signal).then((list) => add(list.nodes.map(ofNode)), () => undefined);
    jobs({ limit: KNOWN }, gone.signal).then((list) => add([...new Set(list.jobs.map((job) => job.user))].filter(Boolean).map(ofUser)), () => undefined);
    return () => gone.abort();
  }, []);
  useEffect(() => {
    const gone = new AbortController();
    const exact = wanted ? jobs({ user: wanted, limit: 1 }, gone.signal) : Promise.resolve({ total: 0 });
    Promise.all([jobs({ name: wanted, limit: MOST }, gone.signal), exact]).then(
      ([list, own]) => setFound([...list.jobs.map(ofJob), ...(own.total ? [ofUser(wanted)] : [])]),
      () => undefined,
    );
    return () => gone.abort();
  }, [wanted]);
  const shown = useMemo(() => {
    const part = text.trim().toLowerCase();
    const own = ownUser() ? [{ kind: "View", text: "My jobs", more: ownUser(), to: href([], { user: ownUser() }) }] : [];
    const views = savedViews().map((one): Target => ({ kind: "View", text: one.name, more: "saved", to: viewAddress(one) }));
    const others = [...PAGES, ...own, ...views, ...known].filter((one) => one.text.toLowerCase().includes(part));
    // Found jobs may belong to an earlier text. Without a text, pages and views come before jobs.
    const fitting = found.filter((one) => `${one.text} ${one.more}`.toLowerCase().includes(part));
    const listed = part ? [...fitting, ...others] : [...others, ...fitting];
    const count = new Map<string, number>();
    const seen = new Set<string>();
    return listed.filter((one) => {
      const [number, duplicate] = [(count.get(one.kind) ?? 0) + 1, seen.has(one.kind + one.to)];
      seen.add(one.kind + one.to);
      if (!duplicate) count.set(one.kind, number);
      return !duplicate && number <= (part ? MOST : one.kind === "Page" || one.kind === "View" ? MOST : 3);
    });
  }, [text, known, found]);
  const place = Math.min(at, shown.length - 1);
  const enter = (target: Target | undefined) => {
    if (!target) return;
    close();
    go(target.to);
  };
  const pressed = (event: KeyboardEvent) => {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (by) setAt((place + by + shown.length) % Math.max(shown.length, 1));
    else if (event.key === "Enter") enter(shown[place]);
    else return;
    event.preventDefault();
  };
  useEffect(() => document.getElementById(`target-${place}`)?.scrollIntoView({ block: "nearest" }), [place]);
  return (
    <dialog class="palette" aria-label="Go to" {...dialog}>
      <div>
        <input
          type="search"
          role="combobox"
          aria-label="Job, node, user or page"
          placeholder="Job, node, user or page"
          aria-expanded="true"
          aria-controls="targets"
          aria-activedescendant={shown.length ? `target-${place}` : undefined}
          autocomplete="off"
          spellcheck={false}
          autofocus
          value={text}
          onInput={(event) => {
            setText(event.currentTarget.value);
            setAt(0);
          }}
          onKeyDown={pressed}
        />
        <ul id="targets" role="listbox" aria-label="Results">
          {shown.map((one, index) => (
            <li key={`${one.kind} ${one.to}`} id={`target-${index}`} role="option" aria-selected={index === place} onClick={() => enter(one)}>
              <small>{one.kind}</small>
              <b>{one.text}</b>
              <span>{one.more}</span>
            </li>
          ))}
        </ul>
        {!shown.length && <p class="hint">No results. Type part of the name of a job, node, user or page.</p>}
      </div>
    </dialog>
  );
}
