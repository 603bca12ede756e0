// Live data of all nodes, and figures computed from it.
import { useEffect, useState } from "preact/hooks";
import { type LiveState, type Schemas, Refusal, address, follow, read } from "../api/client";
import { formatMoney, compareNatural } from "../format";

export type Fleet = Schemas["FleetBody"];
export type FleetNode = Schemas["FleetNodeBody"];
export type FleetDevice = Schemas["FleetDeviceBody"];

/**
 * State of a device. `unknown`: a job has it, but no recent value exists. `free`: a job could use it now. `away`: no
 * job can use it, because its node is down or never reported, or because the device is lost.
 */
export type DeviceState = "busy" | "idle" | "free" | "away" | "unknown";

export type Fault = Schemas["FaultBody"];

/** Return the faults of a node and its devices. Servers of earlier releases send none. */
export const faultsOf = (node: FleetNode): readonly Fault[] => node.faults ?? [];

/** Format a fault: "gpu2: XID 79: the GPU has fallen off the bus". */
export const faultText = (one: Fault): string => (one.device && !one.text.includes(one.device) ? `${one.device}: ${one.text}` : one.text);

/** Device states in which no job can compute. In other states only the agent cannot reach the device. */
const UNUSABLE = new Set(["driver not loaded", "hangs", "reset required", "lost"]);

export function stateOf(node: FleetNode, device: FleetDevice): DeviceState {
  if (device.job === undefined || device.job === null) return node.state === "up" && !UNUSABLE.has(device.state ?? "") ? "free" : "away";
  if (device.use === undefined || device.use === null) return "unknown";
  return device.idle ? "idle" : "busy";
}

export function useFleet(): { fleet: Fleet | null; error: Refusal | null; live: LiveState | null; reload: () => void } {
  const [fleet, setFleet] = useState<Fleet | null>(null);
  const [error, setError] = useState<Refusal | null>(null);
  const [live, setLive] = useState<LiveState | null>(null);
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    // The stream starts with a complete snapshot. If it fails, a plain request tells why.
    const gone = new AbortController();
    let fallback = false;
    const end = follow<Fleet>(address("/api/jobmeter/v1/live/fleet"), setFleet, (state) => {
      setLive(state);
      if (state === "live") setError(null);
      if (state !== "lost" || fallback) return;
      fallback = true;
      read<Fleet>(address("/api/jobmeter/v1/fleet"), gone.signal).then(setFleet, (problem: unknown) => problem instanceof Refusal && setError(problem));
    });
    return () => {
      gone.abort();
      end();
    };
  }, [turn]);
  return { fleet, error, live, reload: () => setTurn((now) => now + 1) };
}

export interface Counts {
  nodes: number;
  up: number;
  down: number;
  unknown: number;
  devices: number;
  busy: number;
  idle: number;
  free: number;
  away: number;
  unmeasured: number;
  /** Number of nodes with faults. */
  faulty: number;
  /** Mean utilization of the measured devices that a job has; null without any. */
  use: number | null;
  /** Cost of idle devices per hour; null without a price. */
  cost: number | null;
}

export function countFleet(fleet: Fleet, nodes: readonly FleetNode[]): Counts {
  const found: Counts = { nodes: nodes.length, up: 0, down: 0, unknown: 0, devices: 0, busy: 0, idle: 0, free: 0, away: 0, unmeasured: 0, faulty: 0, use: null, cost: null };
  let [used, measured] = [0, 0];
  for (const node of nodes) {
    found[node.state as "up" | "down" | "unknown"] += 1;
    if (faultsOf(node).length) found.faulty += 1;
    for (const device of node.devices) {
      found.devices += 1;
      const does = stateOf(node, device);
      found[does === "unknown" ? "unmeasured" : does] += 1;
      if (does === "busy" || does === "idle") {
        used += device.use ?? 0;
        measured += 1;
      }
      if (does === "idle") found.cost = addCosts(found.cost, priceOf(fleet, device));
    }
  }
  found.use = measured ? used / measured : null;
  return found;
}

export const priceOf = (fleet: Fleet, device: FleetDevice): number | null =>
  device.type === undefined || device.type === null ? null : (fleet.types[device.type]?.price_hour ?? null);

export const addCosts = (a: number | null, b: number | null): number | null => (a === null ? b : b === null ? a : a + b);

export const formatHourly = (fleet: Fleet, cost: number): string => `${formatMoney(cost, fleet.currency)}/h`;

/** Group nodes by resource group. Nodes without one come last. */
export function groupNodes(nodes: readonly FleetNode[]): [string, FleetNode[]][] {
  const found = new Map<string, FleetNode[]>();
  for (const node of nodes) {
    const group = found.get(node.resource_group);
    if (group) group.push(node);
    else found.set(node.resource_group, [node]);
  }
  return [...found].sort(([a], [b]) => (a && b ? compareNatural(a, b) : a ? -1 : 1));
}

export interface Waste {
  user: string;
  job: Schemas["FleetHolder"];
  idle: number;
  devices: number;
  nodes: Set<string>;
  cost: number | null;
}

/** Return the jobs with idle devices, the most expensive first. */
export function findWaste(fleet: Fleet): Waste[] {
  const found = new Map<number, Waste>();
  for (const node of fleet.nodes) {
    for (const device of node.devices) {
      const job = device.job === undefined || device.job === null ? undefined : fleet.jobs[device.job];
      if (!job) continue;
      const at = device.job!;
      const mine = found.get(at) ?? { user: job.user, job, idle: 0, devices: 0, nodes: new Set<string>(), cost: null };
      mine.devices += 1;
      if (device.idle) {
        mine.idle += 1;
        mine.nodes.add(node.name);
        mine.cost = addCosts(mine.cost, priceOf(fleet, device));
      }
      found.set(at, mine);
    }
  }
  return [...found.values()].filter((one) => one.idle).sort((a, b) => (b.cost ?? 0) - (a.cost ?? 0) || b.idle - a.idle || compareNatural(a.job.id, b.job.id));
}
