// Formatting of numbers with units, durations and times, and access to local storage. Units are UCUM, ratios are 0 to 1.
const BINARY = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
const LARGE = ["", "k", "M", "G", "T", "P"];
const UNIT_NAMES: Record<string, string> = { Cel: "°C", "{core}": "cores" };
const PREFIXED = new Set(["W", "J"]);
export const MISSING = "–";

/** Format a value with its unit: `37.5 %`, `1.20 GiB/s`, `213 W`. On an axis, trailing zeros are left out. */
export function formatQuantity(value: number | null | undefined, unit: string, axis = false): string {
  const digits = axis ? formatBrief : formatExact;
  if (value === null || value === undefined || !Number.isFinite(value)) return MISSING;
  if (unit === "1") return `${digits(value * 100)} %`;
  const [base = "", per] = unit.split("/");
  const rate = per ? `/${per}` : "";
  if (base === "By") return formatScaled(value, 1024, BINARY, rate, digits);
  if (base === "Hz") return formatScaled(value, 1000, LARGE.map((prefix) => `${prefix}Hz`), rate, digits);
  const name = UNIT_NAMES[base] ?? base.replace(/^\{(.*)\}$/, (_, counted: string) => pluralize(value, counted));
  if (base !== name && !UNIT_NAMES[base] && !per && Number.isInteger(value) && Math.abs(value) < 10_000) return `${formatGrouped(value)} ${name}`;
  // Watts and joules take an SI prefix: 39.6 kW. Counted units do not: 39.6 k cores.
  if (PREFIXED.has(base)) return formatScaled(value, 1000, LARGE.map((prefix) => `${prefix}${base}`), rate, digits);
  if (Math.abs(value) >= 10_000) return `${formatScaled(value, 1000, LARGE, "", digits)}${name ? ` ${name}${rate}` : rate}`;
  return `${digits(value)}${name ? ` ${name}${rate}` : rate}`;
}

/** Return the singular or plural of a noun: `process`, `processes`, `retries`. */
export function pluralize(value: number, noun: string): string {
  if (value === 1) return noun;
  return /[^aeiou]y$/.test(noun) ? `${noun.slice(0, -1)}ies` : `${noun}${/(s|x|ch|sh)$/.test(noun) ? "es" : "s"}`;
}

function formatScaled(value: number, factor: number, names: readonly string[], rate: string, digits: (value: number) => string): string {
  let size = value;
  let at = 0;
  // Compare the rounded value: 1023.7 KiB is shown as 1.00 MiB, not as 1024 KiB.
  while (Math.abs(Number(digits(size).replaceAll(",", ""))) >= factor && at < names.length - 1) {
    size /= factor;
    at += 1;
  }
  return `${digits(size)} ${names[at]}${rate}`.trim();
}

const formatBrief = (value: number): string => formatGrouped(Number(value.toFixed(2)));

/** Format a number with thousands separators. */
const formatGrouped = (value: number): string => (Math.abs(value) < 1000 ? String(value) : COMMAS.format(value));
const COMMAS = new Intl.NumberFormat("en", { maximumFractionDigits: 2 });

function formatExact(value: number): string {
  const size = Math.abs(value);
  if (size >= 99.95 || value === 0) return formatGrouped(Math.round(value));
  return size >= 9.995 ? value.toFixed(1) : value.toFixed(2);
}

/** Format an amount of money: `12.50 CNY`. */
export const formatMoney = (value: number, currency: string): string => `${value.toLocaleString("en", { maximumFractionDigits: 2, minimumFractionDigits: 2 })} ${currency}`;

/** Quote a text for a POSIX shell. */
export const quoteForShell = (text: string): string => `'${text.replaceAll("'", "'\\''")}'`;

/** Format a duration: `8 s`, `4 m 05 s`, `2 h 03 m`, `3 d 4 h`. */
export function formatDuration(ms: number | null | undefined): string {
  if (ms === null || ms === undefined) return MISSING;
  // Round to the smaller unit before splitting: 119.6 s is 2 m 00 s, not "1 m 60 s".
  const [tenths, seconds, minutes, hours] = [100, 1000, 60_000, 3_600_000].map((unit) => Math.round(Math.max(0, ms) / unit)) as [number, number, number, number];
  if (tenths < 100) return `${(tenths / 10).toFixed(1)} s`;
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} m ${padTwo(seconds % 60)} s`;
  if (minutes < 48 * 60) return `${Math.floor(minutes / 60)} h ${padTwo(minutes % 60)} m`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

let utc = readSetting("jobmeter-utc") === "1";
const listeners = new Set<() => void>();

export const isUtc = () => utc;

/** Choose between UTC and the browser's time zone. */
export function setUtc(value: boolean): void {
  utc = value;
  writeSetting("jobmeter-utc", value ? "1" : "0");
  listeners.forEach((listener) => listener());
}

export function onZone(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Split a time into day and time of day, in the chosen zone. */
export function splitTime(ms: number): { day: string; time: string } {
  const at = new Date(ms);
  if (utc) {
    const text = at.toISOString();
    return { day: text.slice(0, 10), time: text.slice(11, 19) };
  }
  const day = `${at.getFullYear()}-${padTwo(at.getMonth() + 1)}-${padTwo(at.getDate())}`;
  return { day, time: `${padTwo(at.getHours())}:${padTwo(at.getMinutes())}:${padTwo(at.getSeconds())}` };
}

/** Format a time: `2026-11-22 15:43:06`. The short form leaves out today's date. */
export function formatTime(ms: number | null | undefined, short = false): string {
  if (ms === null || ms === undefined) return MISSING;
  const { day, time } = splitTime(ms);
  return short && day === splitTime(Date.now()).day ? time : `${day} ${time}`;
}

/** Format a time for narrow columns: `15:43:06` today, `11-22 15:43` this year, else `2025-11-22`. */
export function formatBriefTime(ms: number): string {
  const { day, time } = splitTime(ms);
  const today = splitTime(Date.now()).day;
  if (day === today) return time;
  return day.slice(0, 4) === today.slice(0, 4) ? `${day.slice(5)} ${time.slice(0, 5)}` : day;
}

export const toIso = (ms: number): string => new Date(ms).toISOString();

export function zoneName(): string {
  if (utc) return "UTC";
  const minutes = -new Date().getTimezoneOffset();
  if (!minutes) return "UTC";
  return `UTC${minutes < 0 ? "−" : "+"}${padTwo(Math.floor(Math.abs(minutes) / 60))}:${padTwo(Math.abs(minutes) % 60)}`;
}

const padTwo = (value: number): string => String(value).padStart(2, "0");

export function readSetting(name: string): string | null {
  try {
    return localStorage.getItem(name);
  } catch {
    return null; // local storage may be disabled
  }
}

export function writeSetting(name: string, value: string): void {
  try {
    localStorage.setItem(name, value);
  } catch {
    // Local storage may be disabled: the setting then lasts until the page is closed.
  }
}

/** Compare names with numbers in natural order: `worker-2` before `worker-10`. */
export const compareNatural = new Intl.Collator("en", { numeric: true, sensitivity: "base" }).compare;
