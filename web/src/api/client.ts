// Calls of Jobmeter's own API, typed from its OpenAPI document. A refusal is a Refusal with the server's sentence.
import { answered, goesOn, heard, isAway, probe, standsStill, unanswered } from "./connection";
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
/** A line of an answer with `format=columns`: pairs of times and values would be thousands of objects to collect again. */
export type Line = Omit<Schemas["LineBody"], "points" | "timeline" | "values"> & { time: readonly number[]; value: readonly number[] };
export type MetricLines = Schemas["MetricsBody"];
export type LiveJob = Schemas["LiveJob"];

/** The lines of an answer with `format=columns`, with their times. */
export function linesOf({ lines, timelines = [] }: Pick<MetricLines, "lines" | "timelines">): Line[] {
  return lines.map(({ metric, unit, replica, node, device, rank, timeline = 0, values = [] }) => ({ metric, unit, replica, node, device, rank, time: timelines[timeline] ?? [], value: values as number[] }));
}
export type LiveJobs = Schemas["LiveJobs"];

export const BASE = "/api/jobmeter/v1";

/** What the server refused, in its own words. */
export class Refusal extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    /** Seconds after which the server may be asked again, where it says so. */
    readonly wait: number | null = null,
    /** The part of what was sent that is meant. */
    readonly field = "",
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

/** Resolves when it is the caller's turn to do what takes long. */
export type Turn = () => Promise<void>;

/** The answer to a question; a large one is decoded in turn. */
export async function read<T>(url: string, signal?: AbortSignal, turn?: Turn): Promise<T> {
  return call<T>(url, signal ? { signal } : {}, turn);
}

/** A call that changes something: the header proves that it comes from this page. */
export async function change<T>(method: "POST" | "DELETE", url: string, authorization?: string, body?: unknown): Promise<T> {
  const headers: Record<string, string> = { "X-Jobmeter-Page": "1" };
  if (authorization) headers["Authorization"] = authorization;
  if (body === undefined) return call<T>(url, { method, headers });
  headers["Content-Type"] = "application/json";
  return call<T>(url, { method, headers, body: JSON.stringify(body) });
}

const begun = new Map<string, Promise<Response | null>>();

/** Ask before anybody reads the answer, while the rest of the script is still on its way. Who reads it first takes it. */
export function begin(url: string): void {
  begun.set(
    url,
    fetch(url, { credentials: "same-origin" }).catch(() => null),
  );
}

/** The answer to a question that was begun; null where there is none, or none that is of use. */
async function taken(url: string, options: RequestInit): Promise<Response | null> {
  const early = options.method ? undefined : begun.get(url);
  begun.delete(url);
  const response = early ? await early : null;
  options.signal?.throwIfAborted();
  return response?.ok ? response : null;
}

export async function call<T>(url: string, options: RequestInit, turn?: Turn): Promise<T> {
  let response: Response;
  try {
    response = (await taken(url, options)) ?? (await fetch(url, { credentials: "same-origin", ...options }));
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    unanswered();
    throw new Refusal(0, "unreachable", "The server does not answer");
  }
  if (isAway(response.status)) {
    unanswered();
    throw new Refusal(0, "unreachable", `The server does not answer (${response.status})`);
  }
  answered();
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

/** Register a listener for the end of the session. Returns its removal. */
export function onSignedOut(listener: () => void): () => void {
  signedOut.add(listener);
  return () => signedOut.delete(listener);
}

const FIRST_PAUSE = 2_000;
const LONGEST_PAUSE = 30_000;

/** Follow something live while the tab is looked at; gives what ends it. Large updates are decoded and taken in turn. */
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
      goesOn(stream);
      changed("live");
    };
    source.onmessage = (event: MessageEvent<string>) => {
      heard();
      if (turn) void takeInTurn(event.data, turn);
      else take(JSON.parse(event.data) as T);
    };
    source.onerror = () => {
      standsStill(stream);
      changed("lost");
      if (source?.readyState === EventSource.CLOSED) later();
      else void probe();
    };
    source.addEventListener("end", () => {
      over = true;
      close();
      changed("over");
    });
    // The session has ended, which the next call shows, or what it may see has changed: then the stream opens again.
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
    goesOn(stream);
    source?.close();
    source = null;
  };
  // What was refused is not opened again by the browser: too many at once, say. A session that is over is shown as such.
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
  // A browser has few connections to one server: a tab that nobody sees holds none.
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
