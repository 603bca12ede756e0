// API calls of a month: free quota, remaining quota, cost.
import { type Schemas, address } from "../api/client";
import { useRead } from "../parts/hooks";
import { mergeQuery, go, href } from "../router";
import { AccessProblem } from "./page";

type Row = Schemas["UsageRow"];

/** Return a month such as `2026-11` and the eleven months before it. */
function months(last: string): string[] {
  const [year = 1970, month = 1] = last.split("-").map(Number);
  return Array.from({ length: 12 }, (_, back) => {
    const at = year * 12 + (month - 1) - back;
    return `${Math.floor(at / 12)}-${String((at % 12) + 1).padStart(2, "0")}`;
  });
}

export function UsageView({ query }: { query: URLSearchParams }) {
  const month = query.get("month");
  const response = useRead<Schemas["UsageBody"]>(address("/api/jobmeter/v1/usage", {}, { month }));
  const present = useRead<Schemas["UsageBody"]>(month ? address("/api/jobmeter/v1/usage") : null);
  if (response.error) return <AccessProblem error={response.error} who="the usage" reload={response.reload} />;
  const found = response.data;
  if (!found) return null;
  const rows = [...found.usage].sort((a, b) => Number(b.cost ?? 0) - Number(a.cost ?? 0) || b.calls - a.calls);
  // Without prices, the columns of prices would be empty.
  const priced = rows.some((row) => row.unit_price !== null || row.cost !== null || Boolean(row.free) || row.pricing === "free");
  const unpriced = rows.filter((row) => row.cost === null).reduce((sum, row) => sum + row.calls, 0);
  return (
    <section aria-label="API usage">
      <div class="figureline">
        <label>
          Month{" "}
          <select value={found.month} onChange={(event) => go(href(["admin", "usage"], mergeQuery(query, { month: event.currentTarget.value })), true)}>
            {[...new Set([...months(present.data?.month ?? (month ? new Date().toISOString().slice(0, 7) : found.month)), found.month])].map((one) => (
              <option key={one}>{one}</option>
            ))}
          </select>
        </label>
        <p class="figures">
          <b>{found.calls.toLocaleString("en")}</b> calls, <b>{found.failed.toLocaleString("en")}</b> failed
          {priced && (
            <>
              {" "}
              · <b>{found.cost}</b> {found.currency}
              {unpriced > 0 && ` for calls with a price (${unpriced.toLocaleString("en")} calls have none)`}
            </>
          )}{" "}
          · time zone {found.time_zone}
        </p>
      </div>
      {!rows.length && <p class="hint">No calls in {found.month}. Calls of all APIs are counted here within a second.</p>}
      {rows.length > 0 && (
        <div class="wide" tabIndex={0} role="region" aria-label="Calls by operation">
          <table>
            <thead>
              <tr>
                <th scope="col">Operation</th>
                <th scope="col">API</th>
                <th scope="col">Project</th>
                <th scope="col" class="number">Calls</th>
                <th scope="col" class="number">Failed</th>
                {priced && (
                  <>
                    <th scope="col" class="number">Free left</th>
                    <th scope="col" class="number">Price per call</th>
                    <th scope="col" class="number">Cost</th>
                  </>
                )}
              </tr>
            </thead>
            <tbody>
              {rows.map((row) => (
                <tr key={`${row.account} ${row.api} ${row.operation}`}>
                  <th scope="row">{row.operation}</th>
                  <td>{row.api}</td>
                  <td>{row.account}</td>
                  <td class="number">{row.calls.toLocaleString("en")}</td>
                  <td class="number">{row.failed.toLocaleString("en")}</td>
                  {priced && (
                    <>
                      <td class="number">{freeLeft(row)}</td>
                      <td class="number">{row.unit_price === null ? <span class="none">no price</span> : row.unit_price}</td>
                      <td class="number">{row.cost === null ? <span class="none">–</span> : `${row.cost} ${found.currency}`}</td>
                    </>
                  )}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}

function freeLeft(row: Row) {
  if (row.pricing === "free") return "all free";
  if (!row.free) return <span class="none">–</span>;
  return `${(row.free_left ?? 0).toLocaleString("en")} of ${row.free.toLocaleString("en")}`;
}
