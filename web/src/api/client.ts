// Calls of Jobmeter's own API, typed from its OpenAPI document. An error response becomes a Refusal with the server's message.
import { reportResponse, reportResume, reportMessage, isGatewayError, probe, reportStall, reportFailure } from "./connection";
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
/** Series of a `format=columns` response. Arrays avoid thousands of small [time, value] objects. */
export type Line = Omit<Schemas["LineBody"], "points" | "timeline" | "values"> & { time: readonly number[]; value: readonly number[] };
export type MetricLines = Schemas["MetricsBody"];
export type LiveJob = Schemas["LiveJob"];
export type LiveJobs = Schemas["LiveJobs"];

/** Return the series of a `format=columns` response, each with its times. */
export function linesOf({ lines, timelines = [] }: Pick<MetricLines, "lines" | "timelines">): Line[] {
  return lines.map(({ metric, unit, replica, node, device, rank, timeline = 0, values = [] }) => ({ metric, unit, replica, node, device, rank, time: timelines[timeline] ?? [], value: values as number[] }));
}

/** Return the series of a `format=columns` response by metric. */
export function linesByMetric(body: Pick<MetricLines, "lines" | "timelines"> | null): Map<string, Line[]> {
  const found = new Map<string, Line[]>();
  for (const line of body ? linesOf(body) : []) {
    const mine = found.get(line.metric);
    if (mine) mine.push(line);
    else found.set(line.metric, [line]);
  }
  return found;
}

export const BASE = "/api/jobmeter/v1";

/** Error response of the server, with its own message. */
export class Refusal extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    /** Seconds until a retry makes sense (Retry-After); null if the server names none. */
    readonly wait: number | null = null,
    /** Name of the request field that is wrong; empty if the server names none. */
    readonly field = "",
  ) {
    super(message);
  }
}

type Reading = { [Path in keyof paths]: paths[Path] extends { get: unknown } ? Path : never }[keyof paths];
export type Query = Record<string, string | number | readonly string[] | null | undefined>;

/** Build the URL of a GET endpoint. `names` fills each `{name}` in the path. */
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

/** Resolves when the scheduler has time for expensive work. */
export type Turn = () => Promise<void>;

/** Read from the API. With `turn`, a large response is parsed when the scheduler has time. */
export async function read<T>(url: string, signal?: AbortSignal, turn?: Turn): Promise<T> {
  return call<T>(url, signal ? { signal } : {}, turn);
}

/** Send a request that changes something. The header proves that it comes from this page (CSRF). */
export async function send<T>(method: "POST" | "PUT" | "DELETE", url: string, body?: unknown, authorization?: string): Promise<T> {
  const headers: Record<string, string> = { "X-Jobmeter-Page": "1" };
  if (authorization) headers["Authorization"] = authorization;
  if (body === undefined) return call<T>(url, { method, headers });
  headers["Content-Type"] = "application/json";
  return call<T>(url, { method, headers, body: JSON.stringify(body) });
}

const prefetched = new Map<string, Promise<Response | null>>();

/** Send a GET request before its reader is loaded. The first `call` of the URL takes the response. */
export function prefetch(url: string): void {
  prefetched.set(
    url,
    fetch(url, { credentials: "same-origin" }).catch(() => null),
  );
}

/** Return the prefetched response of the URL; null without one, or if it failed. */
async function takePrefetched(url: string, options: RequestInit): Promise<Response | null> {
  const early = options.method ? undefined : prefetched.get(url);
  prefetched.delete(url);
  const response = early ? await early : null;
  options.signal?.throwIfAborted();
  return response?.ok ? response : null;
}

export async function call<T>(url: string, options: RequestInit, turn?: Turn): Promise<T> {
  let response: Response;
  try {
    response = (await takePrefetched(url, options)) ?? (await fetch(url, { credentials: "same-origin", ...options }));
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    reportFailure();
    throw new Refusal(0, "unreachable", "The server does not answer");
  }
  if (isGatewayError(response.status)) {
    reportFailure();
    throw new Refusal(0, "unreachable", `The server does not answer (${response.status})`);
  }
  reportResponse();
  if (response.ok) return turn ? await decode<T>(await response.text(), turn) : ((await response.json()) as T);
  const body: unknown = await response.json().catch(() => null);
  const problem = (body as Schemas["ProblemBody"] | null)?.error;
  if (response.status === 401) signedOut.forEach((listener) => listener());
  throw new Refusal(response.status, problem?.code ?? "", problem?.message ?? `the server answered ${response.status}`, waitOf(response), problem?.field ?? "");
}

async function decode<T>(text: string, turn: Turn): Promise<T> {
  await turn();
  return JSON.parse(text) as T;
}

const LONGEST_WAIT = 60;

function waitOf(response: Response): number | null {
  const wait = Number(response.headers.get("Retry-After") ?? Number.NaN);
  return Number.isFinite(wait) ? Math.min(Math.max(wait, 1), LONGEST_WAIT) : null;
}

const signedOut = new Set<() => void>();

/** Register a listener for the end of the session. Returns a function that removes it. */
export function onSignedOut(listener: () => void): () => void {
  signedOut.add(listener);
  return () => signedOut.delete(listener);
}

const FIRST_PAUSE = 2_000;
const LONGEST_PAUSE = 30_000;

/** Follow an event stream while the tab is visible. Returns a function that closes it. */
export function follow<T>(url: string, take: (update: T) => void, changed: (state: LiveState) => void, turn?: Turn): () => void {
  let source: EventSource | null = null;
  let over = false;
  let left = false;
  let pause = FIRST_PAUSE;
  let timer: ReturnType<typeof setTimeout> | undefined;
  const stream = {};
  const open = () => {
    if (source || over || document.hidden) return;
    source = new EventSource(url);
    source.onopen = () => {
      pause = FIRST_PAUSE;
      reportResume(stream);
      changed("live");
    };
    source.onmessage = (event: MessageEvent<string>) => {
      reportMessage();
      if (turn) void takeInTurn(event.data, turn);
      else take(JSON.parse(event.data) as T);
    };
    source.onerror = () => {
      reportStall(stream);
      changed("lost");
      if (source?.readyState === EventSource.CLOSED) later();
      else void probe();
    };
    source.addEventListener("end", () => {
      over = true;
      close();
      changed("over");
    });
    // The server sends `refused` when the session ended or its permissions changed. Reconnecting shows which.
    source.addEventListener("refused", () => {
      close();
      changed("lost");
      later();
    });
  };
  const takeInTurn = async (text: string, turn: Turn) => {
    const update = await decode<T>(text, turn);
    await turn();
    if (!left) take(update);
  };
  const close = () => {
    clearTimeout(timer);
    reportResume(stream);
    source?.close();
    source = null;
  };
  // EventSource does not reconnect after an error status, for example 429. An ended session is reported by `read`.
  const later = () => {
    source?.close();
    source = null;
    timer = setTimeout(() => {
      read(`${BASE}/whoami`).then(open, (problem: unknown) => {
        if (!(problem instanceof Refusal && problem.status === 401)) later();
      });
    }, pause);
    pause = Math.min(2 * pause, LONGEST_PAUSE);
  };
  // A browser opens few connections to one host: a hidden tab holds none.
  const seen = () => (document.hidden ? close() : open());
  document.addEventListener("visibilitychange", seen);
  open();
  return () => {
    over = left = true;
    document.removeEventListener("visibilitychange", seen);
    close();
  };
}

export type LiveState = "live" | "lost" | "over";
