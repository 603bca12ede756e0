import { describe, expect, it } from "vitest";
import { GROUPS, METRICS, findMetric, ruleTitle, metricsIn, title } from "../src/catalog";
import { groupMetrics } from "../src/charts/groups";

it("names a rule in words, also one without a row", () => {
  expect(ruleTitle("cuda_oom")).toBe("GPU out of memory");
  expect(ruleTitle("gpu_idle_allocated")).toBe("GPU idle allocated");
  expect(ruleTitle("disk_too_warm")).toBe("Disk too warm");
});

it("names a metric by its row, and by its name without a row", () => {
  expect(title("cpu.usage")).toBe(findMetric("cpu.usage")?.title);
  expect(title("app.train_loss")).toBe("Train loss");
  expect(findMetric("app.train_loss")).toBeUndefined();
});

describe("groups", () => {
  const all = METRICS.map(({ name }) => name);

  it("have every metric with a chart exactly once, in the order of the catalogue", () => {
    const found = groupMetrics(all);
    const shown = found.flatMap(({ main, more }) => [...main, ...more]);
    const charts = METRICS.filter(({ views }) => views.includes("first") || views.includes("chart"));
    expect([...shown].sort()).toEqual(charts.map(({ name }) => name).sort());
    expect(found.map(({ id }) => id)).toEqual(GROUPS.map(({ id }) => id).filter((id) => charts.some(({ group }) => group === id)));
  });

  it("show what programs report at first sight, whatever its order", () => {
    const found = groupMetrics(["app.loss", "cpu.usage", "node.load1", "cpu.limit", "gpu.utilization", "external.queue"]);
    expect(found.map(({ id, main }) => [id, main])).toEqual([
      ["accelerators", ["gpu.utilization"]],
      ["application", ["app.loss", "external.queue"]],
      ["cpu", ["cpu.usage"]],
    ]);
  });

  it("show the first of the others where nothing is for the first sight", () => {
    const [only] = groupMetrics(["storage.processes", "pressure.io"]);
    expect(only).toEqual({ id: "disk", title: "Disk", main: ["pressure.io", "storage.processes"], more: [] });
  });
});

it("offers the devices of a node before the node", () => {
  const names = metricsIn("node");
  expect(names[0]).toBe("gpu.utilization");
  expect(names.filter((name) => name.startsWith("node."))).toEqual(names.slice(names.findIndex((name) => name.startsWith("node."))));
});
