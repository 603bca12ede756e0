// Calls of Jobmeter's own API, typed from its OpenAPI document. A refusal is a Refusal with the server's sentence.
import type { components, paths } from "./schema";

export type Schemas = components["schemas"];
export type Job = Schemas["JobBody"];
export type JobDetail = Schemas["JobDetail"];
export type Replica = Schemas["ReplicaBody"];
export type Device = Schemas["DeviceBody"];
export type Node = Schemas["NodeBody"];
export type JobEvent = Schemas["EventBody"];
export type LogLine = Schemas["LogLineBody"];
export type Point = [number, number];
export type Line = Omit<Schemas["LineBody"], "points"> & { points: Point[] };
export type MetricLines = Omit<Schemas["MetricsBody"], "lines"> & { lines: Line[] };
export type LiveJob = Omit<Schemas["LiveJob"], "lines"> & { lines: Line[] };
export type LiveJobs = Schemas["LiveJobs"];

export const BASE = "/api/jobmeter/v1";

/** What the server refused, in its own words. */
export class Refusal extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
  ) {
    super(message);
  }
}

type Reading = { [Path in keyof paths]: paths[Path] extends { get: unknown } ? Path : never }[keyof paths];
export type Query = Record<string, string | number | readonly string[] | null | undefined>;

/** The address of something that can be read; `{name}` in the path is taken from `names`. */
export function address(path: Reading, names: Record<string, string> = {}, query: Query = {}): string {
  const filled = path.replace(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(names[name] ?? ""));
  const text = queryText(query);
  return text ? `${filled}?${text}` : filled;
}

export function queryText(query: Query): string {
  const parts = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value === null || value === undefined || value === "") continue;
    for (const one of Array.isArray(value) ? value : [value]) parts.append(name, String(one));
  }
  return parts.toString();
}

export async function read<T>(url: string, signal?: AbortSignal): Promise<T> {
  return call<T>(url, signal ? { signal } : {});
}

/** A call that changes something: the header proves that it comes from this page. */
export async function change<T>(method: "POST" | "DELETE", url: string, authorization?: string): Promise<T> {
  const headers: Record<string, string> = { "X-Jobmeter-Page": "1" };
  if (authorization) headers["Authorization"] = authorization;
  return call<T>(url, { method, headers });
}

async function call<T>(url: string, options: RequestInit): Promise<T> {
  let response: Response;
  try {
    response = await fetch(url, { credentials: "same-origin", ...options });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new Refusal(0, "unreachable", "the server does not answer");
  }
  if (response.ok) return (await response.json()) as T;
  const body: unknown = await response.json().catch(() => null);
  const problem = (body as Schemas["ProblemBody"] | null)?.error;
  if (response.status === 401) signedOut.forEach((tell) => tell());
  throw new Refusal(response.status, problem?.code ?? "", problem?.message ?? `the server answered ${response.status}`);
}

const signedOut = new Set<() => void>();

/** Be told when the session holds no longer. */
export function onSignedOut(tell: () => void): () => void {
  signedOut.add(tell);
  return () => signedOut.delete(tell);
}

/** Follow something live while the tab is looked at; gives what ends it. */
export function follow<T>(url: string, take: (update: T) => void, told: (state: LiveState) => void): () => void {
  let source: EventSource | null = null;
  let over = false;
  const open = () => {
    if (source || over || document.hidden) return;
    source = new EventSource(url);
    source.onopen = () => told("live");
    source.onmessage = (event: MessageEvent<string>) => take(JSON.parse(event.data) as T);
    source.onerror = () => told("lost");
    source.addEventListener("end", () => {
      over = true;
      close();
      told("over");
    });
    source.addEventListener("refused", () => {
      over = true;
      close();
      signedOut.forEach((tell) => tell());
    });
  };
  const close = () => {
    source?.close();
    source = null;
  };
  // A browser has few connections to one server: a tab that nobody sees holds none.
  const seen = () => (document.hidden ? close() : open());
  document.addEventListener("visibilitychange", seen);
  open();
  return () => {
    over = true;
    document.removeEventListener("visibilitychange", seen);
    close();
  };
}

export type LiveState = "live" | "lost" | "over";
