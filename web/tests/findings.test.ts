import { describe, expect, it } from "vitest";
import { type Finding, flagsOf, groupFindings, isSpan, logPlaceOf, namesOf } from "../src/job/finding";

const found = (fields: Partial<Finding>): Finding => ({ rule: "xid", role: "root", severity: "warning", subject: { kind: "replica", name: "worker-0" }, replicas: ["worker-0"], sentence: "", advice: "", evidence: [], ...fields }) as Finding;
const log = (text: string, time: number, replica: string) => ({ kind: "log", text, time, replica, metric: "", value: null, limit: null, unit: "" });

it("lasts for a second at least, or is a moment", () => {
  expect([0, 40, 999, 1000].map((length) => isSpan(found({ start: 5, end: 5 + length })))).toEqual([false, false, false, true]);
});

describe("flags", () => {
  it("name the ranks of findings, the worst first, with the device that is meant", () => {
    const one = found({ subject: { kind: "device", name: "node-1/gpu3" }, sentence: "worker-0 (node-1, gpu3) is hot" });
    expect(flagsOf([one, found({ rule: "swap" })], 8)).toEqual([{ member: "worker-0", device: "gpu3", text: "is hot" }]);
  });
  it("leave out rules that name most ranks, consequences and information", () => {
    const all = ["worker-0", "worker-1", "worker-2"].map((name) => found({ replicas: [name] }));
    expect(flagsOf(all, 4)).toEqual([]);
    expect(flagsOf(all, 6)).toHaveLength(3);
    expect(flagsOf([found({ role: "cascade" }), found({ severity: "info" })], 8)).toEqual([]);
    expect(flagsOf([found({})], 1)).toEqual([]);
  });
});

it("gives each finding its own name", () => {
  const all = [found({}), found({}), found({ rule: "swap" })];
  expect([...namesOf(all).values()]).toEqual(["xid worker-0", "xid worker-0 2", "swap worker-0"]);
});

it("joins findings of one rule that follow each other", () => {
  expect(groupFindings([found({}), found({}), found({ rule: "swap" }), found({})]).map((group) => group.length)).toEqual([2, 1, 1]);
});

it("finds the traceback of the rank that raised", () => {
  const exit = found({ rule: "unknown_exit", replicas: ["worker-3"] });
  const raised = found({ rule: "python_exception", replicas: ["worker-2"], evidence: [log("ValueError: x", 9, "worker-2"), log('  File "a.py", line 1, in f', 8, "worker-2")] });
  expect(logPlaceOf(exit, [exit, raised])).toEqual({ replica: "worker-2", end: 9 });
  expect(logPlaceOf(exit, [exit])).toEqual({ replica: "worker-3", end: null });
  expect(logPlaceOf(null, [])).toEqual({ replica: "", end: null });
});
