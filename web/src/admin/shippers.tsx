// Log shippers: the sink of each resource group, and its lag.
import { BASE, type Schemas, address, send } from "../api/client";
import { formatDuration } from "../format";
import { useAction, useReadEvery } from "../parts/hooks";
import { Moment, Problem, Section } from "../parts/elements";
import { Confirm } from "./confirm";
import { AccessProblem } from "./page";
import { ShipFirst } from "./ship-first";

type Shipper = Schemas["ShipperBody"];
const EVERY = 5_000;

export function ShippersPage() {
  const response = useReadEvery<Schemas["ShipperList"]>(address("/api/jobmeter/v1/shippers"), EVERY);
  const { error, perform } = useAction();
  if (response.error) return <AccessProblem error={response.error} who="log shippers" reload={response.reload} />;
  if (!response.data) return null;
  const act = async (work: () => Promise<unknown>): Promise<boolean> => {
    const done = await perform(work);
    response.reload();
    return done;
  };
  return (
    <>
      <NewShipperForm make={(body) => act(() => send("POST", `${BASE}/shippers`, body))} />
      {error && <Problem error={error} />}
      <Section id="shippers" title="Log shippers">
        {!response.data.shippers.length && <ShipFirst />}
        {response.data.shippers.length > 0 && (
          <div class="wide" tabIndex={0} role="region" aria-label="Log shippers">
            <table>
              <thead>
                <tr>
                  <th scope="col">Resource group</th>
                  <th scope="col">Sink</th>
                  <th scope="col">State</th>
                  <th scope="col" class="number">Lag</th>
                  <th scope="col" class="number">Waiting</th>
                  <th scope="col" class="number">Shipped</th>
                  <th scope="col" class="number">Lost</th>
                  <th scope="col">Created</th>
                  <th scope="col">
                    <span class="hidden">Delete</span>
                  </th>
                </tr>
              </thead>
              <tbody>
                {response.data.shippers.map((one) => (
                  <ShipperRow key={one.id} one={one} end={() => void act(() => send("DELETE", `${BASE}/shippers/${encodeURIComponent(one.id)}`))} />
                ))}
              </tbody>
            </table>
          </div>
        )}
      </Section>
    </>
  );
}

function ShipperRow({ one, end }: { one: Shipper; end: () => void }) {
  return (
    <tr>
      <th scope="row">{one.resource_group}</th>
      <td>
        {one.sink_project} / {one.logstore}
      </td>
      <td class={one.state === "failing" ? "lost" : ""} title={one.error}>
        {one.state}
        {one.error && <small class="why"> {one.error}</small>}
      </td>
      <td class="number">{one.lag_seconds ? formatDuration(one.lag_seconds * 1000) : "0 s"}</td>
      <td class="number">{one.waiting.toLocaleString("en")}</td>
      <td class="number">{one.shipped.toLocaleString("en")}</td>
      <td class="number">{(one.dropped + one.rejected).toLocaleString("en")}</td>
      <td>
        <Moment ms={one.created} short />
      </td>
      <td>
        <Confirm text="Delete" name={`${one.resource_group} to ${one.sink_project}`} sure="Stop shipping" act={end} />
      </td>
    </tr>
  );
}

function NewShipperForm({ make }: { make: (body: unknown) => Promise<boolean> }) {
  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    const form = event.currentTarget as HTMLFormElement;
    const given = new FormData(form);
    const text = (name: string) => String(given.get(name) ?? "").trim();
    if (await make({ resource_group: text("group"), sink_project: text("sink"), logstore: text("logstore") })) form.reset();
  };
  return (
    <Section id="make" title="Ship the log lines of a resource group">
      <form class="make" onSubmit={(event) => void submit(event)}>
        <label>
          Resource group <input name="group" placeholder="h200" required autocomplete="off" />
        </label>
        <label>
          Sink's project <input name="sink" placeholder="train" required autocomplete="off" />
        </label>
        <label>
          Sink's log store <input name="logstore" placeholder="lines" required autocomplete="off" />
        </label>
        <button type="submit" class="primary">
          Start shipping
        </button>
      </form>
    </Section>
  );
}
