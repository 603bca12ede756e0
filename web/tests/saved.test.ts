import { describe, expect, it } from "vitest";
import { MOST_VIEWS, parseViews, withView } from "../src/jobs/saved";

const view = (name: string, query = "state=Failed") => ({ name, query });
const full = Array.from({ length: MOST_VIEWS }, (_, at) => view(`view ${at}`));

describe("saved views", () => {
  it.each([null, "", "{", "null", "7", '"text"', "{}", '[null, 7, "a", {}, {"name": 1, "query": ""}, {"name": "a"}]'])("are none in %s", (text) => {
    expect(parseViews(text)).toEqual([]);
  });
  it("are read as they were written", () => {
    expect(parseViews(JSON.stringify(full))).toEqual(full);
  });
  it("are in the order of their names, each name once", () => {
    const views = withView(withView([view("b")], view("a"))!, view("b", "user=lin"));
    expect(views).toEqual([view("a"), view("b", "user=lin")]);
  });
  it("lose none where there is no room for one more", () => {
    expect(withView(full, view("another"))).toBeNull();
    expect(withView(full, view("view 3", "user=lin"))).toHaveLength(MOST_VIEWS);
    expect(withView(full.slice(1), view("another"))).toHaveLength(MOST_VIEWS);
  });
});
