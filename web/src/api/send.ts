import { call } from "./client";

export function send<T>(method: "POST" | "PUT" | "DELETE", url: string, body?: unknown): Promise<T> {
  const headers: Record<string, string> = { "X-Jobmeter-Page": "1" };
  if (body === undefined) return call<T>(url, { method, headers });
  return call<T>(url, { method, headers: { ...headers, "Content-Type": "application/json" }, body: JSON.stringify(body) });
}
