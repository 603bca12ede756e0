// Which metrics are shown together, and what people call them.
export interface Group {
  id: string;
  title: string;
  main: string[];
  more: string[];
}

const TITLES: Record<string, string> = {
  utilization: "Utilization",
  "memory.usage": "Memory in use",
  "memory.utilization": "Memory in use, share",
  "memory.limit": "Memory limit",
  "sm.active": "Multiprocessors active",
  "tensor.active": "Tensor cores active",
  "dram.active": "Memory interface active",
  power: "Power",
  temperature: "Temperature",
  energy: "Power, by energy",
  "cpu.usage": "CPU in use",
  "cpu.utilization": "CPU, share of limit",
  "cpu.throttled.time": "CPU throttled",
  "cpu.limit": "CPU limit",
  "pressure.cpu": "Waiting for CPU",
  "pressure.memory": "Waiting for memory",
  "pressure.io": "Waiting for disks",
  "memory.peak": "Memory, highest",
  "memory.oom.kills": "Killed for memory",
  "network.receive": "Received",
  "network.transmit": "Sent",
  "disk.read": "Read",
  "disk.write": "Written",
};

const MAIN = [
  /^(gpu|npu)\.(utilization|memory\.usage|sm\.active|tensor\.active|power|temperature)$/,
  /^cpu\.(usage|throttled\.time)$/,
  /^memory\.(usage|oom\.kills)$/,
  /^network\./,
  /^disk\./,
  /^(app|external)\./,
  /^flink\.(delay|tps\.rate|numRecordsInPerSecond\.rate|numRecordsOutPerSecond\.rate|lastCheckpointDuration)$/,
];

const KINDS: readonly (readonly [string, string, RegExp])[] = [
  ["application", "Application", /^(app|external|flink)\./],
  ["accelerators", "Accelerators", /^(gpu|npu)\./],
  ["cpu", "CPU", /^(cpu\.|pressure\.cpu|process\.|thread\.)/],
  ["memory", "Memory", /^(memory\.|pressure\.memory)/],
  ["network", "Network", /^network\./],
  ["disk", "Disk", /^(disk\.|storage\.|pressure\.io)/],
];
const ORDER = ["accelerators", "application", "cpu", "memory", "network", "disk"];
const FIRST = ["utilization", "memory.usage", "sm.active", "tensor.active", "power", "temperature"];

/** The metrics that a job has, in the groups in which people think; those not worth a first look are in `more`. */
export function groups(metrics: readonly string[]): Group[] {
  const found = new Map<string, Group>();
  // The rate is what is looked at; limits are lines of charts, not charts.
  const shown = metrics.filter((name) => !/(^cpu\.time|\.limit|\.energy|^node\.|^agent\.)$/.test(name) && !/^(node|agent)\./.test(name));
  for (const name of shown) {
    const kind = KINDS.find(([, , pattern]) => pattern.test(name));
    if (!kind) continue;
    const group = found.get(kind[0]) ?? { id: kind[0], title: kind[1], main: [], more: [] };
    (MAIN.some((pattern) => pattern.test(name)) ? group.main : group.more).push(name);
    found.set(kind[0], group);
  }
  for (const group of found.values()) {
    group.main.sort((a, b) => rank(a) - rank(b));
    if (!group.main.length) [group.main, group.more] = [group.more.slice(0, 4), group.more.slice(4)];
  }
  return [...found.values()].sort((a, b) => ORDER.indexOf(a.id) - ORDER.indexOf(b.id));
}

const rank = (name: string): number => {
  const at = FIRST.indexOf(name.replace(/^(gpu|npu)\./, ""));
  return at < 0 ? FIRST.length : at;
};

export function title(metric: string): string {
  const short = metric.replace(/^(gpu|npu)\./, "");
  const known = TITLES[metric] ?? (short === metric ? undefined : TITLES[short]);
  const spoken = known ?? short.replace(/^(app|external|flink)\./, "").replace(/[._]/g, " ");
  return metric.startsWith("npu.") ? `NPU ${spoken}` : spoken.charAt(0).toUpperCase() + spoken.slice(1);
}

/** What a heat map of ranks may show, the most telling one first. */
export const HEAT = ["gpu.utilization", "npu.utilization", "gpu.sm.active", "gpu.power", "cpu.usage", "memory.usage", "network.receive"];
