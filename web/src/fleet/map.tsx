// Fleet map: a tile for each node, a bar in it for each device. Colour shows the state, depth the utilization.
import { useMemo, useRef } from "preact/hooks";
import { nodeHref } from "../router";
import { type Counts, type Fleet, type FleetDevice, type FleetNode, countFleet, stateOf, faultText, faultsOf, formatHourly } from "./data";
import { formatQuantity } from "../format";

/** Number of nodes from which on tiles have no names. */
const NAMED = 120;
const STEPS = 5;

const colorOf = (node: FleetNode, device: FleetDevice): string => {
  const does = stateOf(node, device);
  if (does === "away") return "var(--map-unknown)";
  if (does !== "busy") return `var(--map-${does})`;
  return `var(--map-use-${Math.min(STEPS - 1, Math.floor((device.use ?? 0) * STEPS))})`;
};

/** Return a CSS gradient with a bar for each device. */
function barsGradient(node: FleetNode): string {
  if (node.state === "down") return "";
  const colors = node.devices.length ? node.devices.map((device) => colorOf(node, device)) : [node.cpu === undefined || node.cpu === null ? "var(--map-unknown)" : `var(--map-use-${Math.min(STEPS - 1, Math.floor(node.cpu * STEPS))})`];
  const width = 100 / colors.length;
  const stops = colors.map((color, at) => `${color} calc(${at * width}% + ${at ? 1 : 0}px) ${(at + 1) * width}%, var(--ground) ${(at + 1) * width}% calc(${(at + 1) * width}% + 1px)`);
  return `linear-gradient(90deg, ${stops.join(", ")})`;
}

const devicesOf = (count: number): string => `${count} ${count === 1 ? "device" : "devices"}`;

/** Words for device states in the tooltip of a node. */
const COUNTED = { busy: "busy", idle: "idle", free: "free", unknown: "not measured", away: "lost" } as const;

export function describe(node: FleetNode): string {
  if (node.state !== "up") return `${node.name}: ${node.state}`;
  const of = (what: string) => node.devices.filter((device) => stateOf(node, device) === what).length;
  const parts = [
    node.devices.length ? devicesOf(node.devices.length) : node.cpu === undefined || node.cpu === null ? "nothing measured" : `CPU ${formatQuantity(node.cpu, "1")}`,
    ...Object.entries(COUNTED)
      .filter(([what]) => of(what))
      .map(([what, word]) => `${of(what)} ${word}`),
  ];
  return [`${node.name}: ${parts.join(", ")}`, ...faultsOf(node).map(faultText)].join("\n");
}

export function FleetMap({ fleet, groups }: { fleet: Fleet; groups: readonly (readonly [string, readonly FleetNode[]])[] }) {
  const box = useRef<HTMLDivElement>(null);
  const named = fleet.nodes.length <= NAMED;
  const short = useMemo(() => makeShortener(fleet.nodes), [fleet.nodes]);
  let first = true;
  const move = (event: KeyboardEvent) => {
    const here = document.activeElement;
    const tiles = [...(box.current?.querySelectorAll<HTMLAnchorElement>(".tile") ?? [])];
    const at = tiles.indexOf(here as HTMLAnchorElement);
    const to = at < 0 ? null : nextTile(tiles, at, event.key);
    if (!to) return;
    event.preventDefault();
    tiles.forEach((tile) => (tile.tabIndex = tile === to ? 0 : -1));
    to.focus();
  };
  return (
    <div class={`fleet ${named ? "named" : ""}`} ref={box} onKeyDown={move}>
      {groups.map(([group, nodes]) => (
        <section key={group} aria-label={group || "No resource group"}>
          <header class="section">
            <h2>{group || (groups.length > 1 ? "No resource group" : "All nodes")}</h2>
            <GroupFigures fleet={fleet} counts={countFleet(fleet, nodes)} />
          </header>
          <div class="tiles">
            {nodes.map((node) => {
              const tabIndex = first ? 0 : -1;
              first = false;
              return (
                <a
                  key={`${node.cluster} ${node.name}`}
                  class={`tile ${node.state}${faultsOf(node).length ? " faulty" : ""}`}
                  href={nodeHref(node.name, node.cluster)}
                  tabIndex={tabIndex}
                  data-step
                  title={describe(node)}
                  aria-label={describe(node)}
                >
                  <i style={{ background: barsGradient(node) }} />
                  {named && <span>{short(node.name)}</span>}
                </a>
              );
            })}
          </div>
        </section>
      ))}
    </div>
  );
}

const host = (name: string): string => (/^[\d.]+$/.test(name) ? name : name.split(".", 1)[0]!);

/** Return a function that shortens node names: without the domain if that stays unique. */
function makeShortener(nodes: readonly FleetNode[]): (name: string) => string {
  const count = new Map<string, number>();
  for (const node of nodes) count.set(host(node.name), (count.get(host(node.name)) ?? 0) + 1);
  return (name) => (count.get(host(name)) === 1 ? host(name) : name);
}

/** Return the tile that an arrow key leads to. Up and down depend on the drawn positions. */
function nextTile(tiles: readonly HTMLAnchorElement[], at: number, key: string): HTMLAnchorElement | null {
  if (key === "ArrowRight") return tiles[at + 1] ?? null;
  if (key === "ArrowLeft") return tiles[at - 1] ?? null;
  if (key === "Home") return tiles[0] ?? null;
  if (key === "End") return tiles[tiles.length - 1] ?? null;
  if (key !== "ArrowDown" && key !== "ArrowUp") return null;
  const here = tiles[at]!.getBoundingClientRect();
  const down = key === "ArrowDown";
  const beyond = (down ? tiles.slice(at + 1) : tiles.slice(0, at).reverse()).filter((tile) => (down ? tile.getBoundingClientRect().top > here.top : tile.getBoundingClientRect().top < here.top));
  const row = beyond[0]?.getBoundingClientRect().top;
  const others = beyond.filter((tile) => tile.getBoundingClientRect().top === row);
  const far = (tile: HTMLAnchorElement) => Math.abs(tile.getBoundingClientRect().left - here.left);
  return others.sort((a, b) => far(a) - far(b))[0] ?? null;
}

export function GroupFigures({ fleet, counts }: { fleet: Fleet; counts: Counts }) {
  const parts = [
    `${counts.nodes} ${counts.nodes === 1 ? "node" : "nodes"}`,
    ...(counts.devices ? [devicesOf(counts.devices)] : []),
    ...(counts.use === null ? [] : [`${formatQuantity(counts.use, "1")} in use`]),
    ...(counts.free ? [`${counts.free} free`] : []),
  ];
  return (
    <span class="hint">
      {parts.join(" · ")}
      {counts.idle > 0 && (
        <b class="wasted">
          {" "}
          · {counts.idle} idle{counts.cost === null ? "" : `, ${formatHourly(fleet, counts.cost)}`}
        </b>
      )}
      {counts.down > 0 && <b class="lost"> · {counts.down} down</b>}
      {counts.faulty > 0 && <b class="lost"> · {counts.faulty} with faults</b>}
    </span>
  );
}

export function Legend() {
  return (
    <ul class="maplegend" aria-label="Colours of the map">
      <li>
        {Array.from({ length: STEPS }, (_, at) => (
          <i key={at} style={{ background: `var(--map-use-${at})` }} />
        ))}
        0 to 100 % in use
      </li>
      {(
        [
          ["idle", "allocated but idle"],
          ["free", "free"],
          ["unknown", "not measured"],
        ] as const
      ).map(([name, text]) => (
        <li key={name}>
          <i style={{ background: `var(--map-${name})` }} />
          {text}
        </li>
      ))}
      <li>
        <i class="down" />
        node down
      </li>
      <li>
        <i class="faulty" />
        fault
      </li>
    </ul>
  );
}
