// The views of the list that the viewer saved in this browser, and the viewer's name as a user of jobs.
import { read } from "../format";

export interface View {
  name: string;
  query: string;
}

export const VIEWS = "jobmeter-views";
export const USER = "jobmeter-user";
export const MOST_VIEWS = 30;

/** The views in a text of the browser's memory, which anything may have written. */
export function viewsIn(text: string | null): readonly View[] {
  try {
    const found: unknown = JSON.parse(text ?? "[]");
    const views = Array.isArray(found) ? (found as View[]) : [];
    return views.filter((one) => typeof one?.name === "string" && typeof one.query === "string");
  } catch {
    return [];
  }
}

export const savedViews = (): readonly View[] => viewsIn(read(VIEWS));

/** The views with one more, or with another one of its name, in the order of names; null where there is no room. */
export function withView(views: readonly View[], view: View): readonly View[] | null {
  const next = [...views.filter((one) => one.name !== view.name), view];
  return next.length > MOST_VIEWS ? null : next.sort((a, b) => a.name.localeCompare(b.name));
}

/** The viewer's name as the user of jobs; empty where nobody stated it. */
export const ownUser = (): string => read(USER) ?? "";
