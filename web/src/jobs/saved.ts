// Saved views of the list and the viewer's user name, both in local storage.
import { readSetting } from "../format";

export interface View {
  name: string;
  query: string;
}

export const VIEWS = "jobmeter-views";
export const USER = "jobmeter-user";
export const MOST_VIEWS = 30;

/** Parse the saved views. Local storage may hold anything, so invalid entries are dropped. */
export function parseViews(text: string | null): readonly View[] {
  try {
    const found: unknown = JSON.parse(text ?? "[]");
    const views = Array.isArray(found) ? (found as View[]) : [];
    return views.filter((one) => typeof one?.name === "string" && typeof one.query === "string");
  } catch {
    return [];
  }
}

export const savedViews = (): readonly View[] => parseViews(readSetting(VIEWS));

/** Add or replace a view, sorted by name. Returns null at the maximum number of views. */
export function withView(views: readonly View[], view: View): readonly View[] | null {
  const next = [...views.filter((one) => one.name !== view.name), view];
  return next.length > MOST_VIEWS ? null : next.sort((a, b) => a.name.localeCompare(b.name));
}

/** Return the viewer's user name; empty if not entered. */
export const ownUser = (): string => readSetting(USER) ?? "";
