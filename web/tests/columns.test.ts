import { describe, expect, it } from "vitest";

import { COLUMNS, shownColumns } from "../src/jobs/columns";

const ids = (chosen: readonly string[] | null, width: number, empty: readonly string[] = []) => shownColumns(chosen, width, new Set(empty)).map((one) => one.id);

describe("columns of the list", () => {
  it("shows an unusual column that somebody chose, before usual ones", () => {
    const usual = ids(null, 1000);
    const chosen = ids([...usual, "exit"], 1000);
    expect(usual).not.toContain("exit");
    expect(chosen).toContain("exit");
    expect(chosen).toEqual(expect.arrayContaining(["duration", "gpu"]));
  });

  it("shows duration and GPU on phones and from 640 pixels on, whatever is chosen", () => {
    const all = COLUMNS.map((one) => one.id);
    for (const width of [320, 360, 599, 640, 700, 820, 1180, 1440, 1920]) expect(ids(all, width), String(width)).toEqual(expect.arrayContaining(["duration", "gpu"]));
  });

  it("leaves findings and names their room before it shows more usual columns", () => {
    expect(ids(null, 1440, ["project"])).not.toContain("type");
    expect(ids(null, 1680, ["project"])).toContain("type");
    expect(ids(["type", ...ids(null, 1440, ["project"])], 1440)).toContain("type");
  });

  it("has no column of findings on a phone, where a sign is beside the name", () => {
    expect(ids(null, 360, ["gpu"])).not.toContain("findings");
    expect(ids(null, 360, ["gpu"])).toHaveLength(2);
  });
});
