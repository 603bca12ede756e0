// The curves of the rows that are seen: few questions at a time, asked once, forgotten when the row is gone for long.
import { useEffect, useState } from "preact/hooks";
import { type Job, type MetricLines, type Point, address, linesOf, read } from "../api/client";
import { step, stepText } from "../charts/steps";
import { type Use, keyOf } from "./pages";

export interface Sparks {
  start: number;
  end: number;
  step: number;
  lines: Record<string, Point[]>;
}

const METRICS = ["cpu.usage", "gpu.utilization", "npu.utilization"];
const POINTS = 40;
const AT_ONCE = 4;
const MOST = 400;
const kept = new Map<string, Sparks>();
const waiting: (() => Promise<void>)[] = [];
let busy = 0;

function next(): void {
  while (busy < AT_ONCE && waiting.length) {
    busy += 1;
    void waiting.shift()!().finally(() => {
      busy -= 1;
      next();
    });
  }
}

const name = (job: Job): string => `${keyOf(job)} ${job.state === "Running" ? "" : (job.end ?? job.last_sample)}`;

export function useSparks(job: Job, use: Use | undefined, drawn: boolean): Sparks | null {
  const key = name(job);
  const [sparks, setSparks] = useState<Sparks | null>(kept.get(key) ?? null);
  useEffect(() => {
    if (!drawn) return;
    const found = kept.get(key);
    if (found) {
      setSparks(found);
      return;
    }
    const gone = new AbortController();
    const ask = async () => {
      if (gone.signal.aborted) return;
      const made = await load(job, gone.signal).catch(() => null);
      if (!made) return;
      kept.set(key, made);
      if (kept.size > MOST) kept.delete(kept.keys().next().value!);
      setSparks(made);
    };
    // A row that is only passed by is not asked about.
    const timer = setTimeout(() => {
      waiting.push(ask);
      next();
    }, 60);
    return () => {
      clearTimeout(timer);
      gone.abort();
    };
  }, [key, drawn]);
  useEffect(() => {
    if (!use || !sparks || job.state !== "Running") return;
    const grown = grow(sparks, use);
    kept.set(key, grown);
    setSparks(grown);
  }, [use]);
  return sparks;
}

async function load(job: Job, signal: AbortSignal): Promise<Sparks> {
  const start = job.start ?? job.first_sample ?? job.created ?? Date.now();
  const end = (job.state === "Running" ? null : (job.end ?? job.last_sample)) ?? Date.now();
  const span = step(start, end + 1, POINTS);
  const query = { metric: METRICS, by: "job", start, end: end + 1, step: stepText(span), format: "columns", project: job.project };
  const answer = await read<MetricLines>(address("/api/jobmeter/v1/jobs/{job}/metrics", { job: job.id }, query), signal);
  return { start, end, step: span, lines: Object.fromEntries(linesOf(answer).map(({ metric, time, value }) => [metric, time.map((at, place): Point => [at, value[place]!])])) };
}

function grow(sparks: Sparks, use: Use): Sparks {
  const time = Math.floor(use.time / sparks.step) * sparks.step;
  const lines = { ...sparks.lines };
  for (const [metric, value] of Object.entries(use.values)) {
    const points = lines[metric] ?? [];
    const last = points[points.length - 1];
    lines[metric] = last && last[0] >= time ? [...points.slice(0, -1), [last[0], value]] : [...points, [time, value]];
  }
  return { ...sparks, end: use.time, lines };
}
