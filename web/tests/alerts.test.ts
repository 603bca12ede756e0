import { describe, expect, it } from "vitest";
import { type Alert, groupAlerts, levelOf, silenceCommand } from "../src/job/alert-groups";

const alert = (fields: Partial<Alert>): Alert => ({
  fingerprint: "f",
  name: "Loaded",
  state: "firing",
  severity: "warning",
  summary: "",
  description: "",
  value: "1",
  labels: {},
  start: 0,
  fired: null,
  muted: false, silences: [],
  ...fields,
});

describe("levelOf", () => {
  it.each([
    ["critical", "critical"],
    ["page", "critical"],
    ["error", "critical"],
    ["warning", "warning"],
    ["info", "info"],
    ["", "info"],
    ["constructor", "info"],
  ])("%j is %s", (severity, level) => expect(levelOf(severity)).toBe(level));
});

describe("grouped", () => {
  it("has nothing of nothing", () => expect(groupAlerts([])).toEqual([]));

  it("puts firing alerts before pending ones, and the worst first", () => {
    const alerts = [
      alert({ name: "a", severity: "info" }),
      alert({ name: "b", state: "pending", severity: "critical" }),
      alert({ name: "c", severity: "critical" }),
      alert({ name: "d", state: "pending", severity: "warning" }),
    ];
    expect(groupAlerts(alerts).map(([one]) => one.name)).toEqual(["c", "a", "b", "d"]);
  });

  it("joins the alerts of a rule in their order, but not those of another state or severity", () => {
    const alerts = [
      alert({ fingerprint: "1" }),
      alert({ fingerprint: "2", name: "Other" }),
      alert({ fingerprint: "3" }),
      alert({ fingerprint: "4", state: "pending" }),
      alert({ fingerprint: "5", severity: "critical" }),
    ];
    expect(groupAlerts(alerts).map((group) => group.map((one) => one.fingerprint))).toEqual([["5"], ["1", "3"], ["2"], ["4"]]);
  });
});

describe("silenceCommand", () => {
  it("names the rule and the job", () => {
    expect(silenceCommand("GpuIdle", "train-1")).toBe("jobmeter silence add alertname=GpuIdle job_id=train-1 --for 2h --comment REASON");
  });

  it("quotes what a shell would read otherwise", () => {
    expect(silenceCommand("GPU idle", "it's $(x)")).toContain(`'alertname=GPU idle' 'job_id=it'\\''s $(x)'`);
  });
});
